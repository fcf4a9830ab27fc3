"""The reference of the language, from its docstrings: every operation, what it does and the PTX that it becomes.

``python -m h100sim.tk.reference`` prints it as Markdown; ``docs/tk.md`` holds the same text.
"""

from __future__ import annotations

import inspect
import re
from types import ModuleType

from .. import tk
from .group import Group

#: Namespaces in the order of the reference, with how a program writes them.
SPACES: dict[str, ModuleType | type] = {
    "tk": tk,
    "tk.warp": tk.warp,
    "tk.warpgroup": tk.warpgroup,
    "tk.group(n)": Group,
    "tk.tma": tk.tma,
    "tk.tma.cluster": tk.tma.cluster,
    "tk.cluster": tk.cluster,
    "tk.pdl": tk.pdl,
}


def operations(space: str) -> list[str]:
    """Return the names of the functions of a namespace, sorted."""
    module = SPACES[space]
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [n for n in vars(module) if not n.startswith("_")]
    home = getattr(module, "__name__", "")
    return sorted(
        name
        for name in names
        if inspect.isfunction(function := getattr(module, name))
        and (listed is not None or module is Group or function.__module__ == home)
    )


def described(space: str, name: str) -> tuple[str, str]:
    """Return the first sentence of an operation's documentation, and its PTX ("" for what emits nothing of its own)."""
    text = " ".join(inspect.cleandoc(getattr(SPACES[space], name).__doc__ or "").split())
    does, _, ptx = text.partition("PTX: ")
    first = re.split(r"(?<=\.)\s", does.strip(), maxsplit=1)[0].rstrip(".")
    first = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", first)
    return first.replace("``", "`"), re.split(r"\.(?:\s|$)", ptx)[0].replace("``", "`")


def reference() -> str:
    """Return the reference as Markdown: a table for each namespace."""
    lines = []
    for space in SPACES:
        lines += [f"### `{space}`", "", "| operation | what it does | PTX |", "|---|---|---|"]
        for name in operations(space):
            does, ptx = described(space, name)
            arguments = ", ".join(p for p in inspect.signature(getattr(SPACES[space], name)).parameters if p != "self")
            cells = (f"`{name}({arguments})`", does, ptx)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(reference())
