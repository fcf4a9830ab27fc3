"""The text of a traced kernel: directives, declarations and the body, one ``.loc`` and one comment per Python line."""

from __future__ import annotations

from ..source_files import portable_name
from .builder import Builder, Line, Location

_VERSION, _TARGET = "8.6", "sm_90a"
_KINDS = {"p": "pred", "h": "b16", "r": "b32", "rd": "b64", "f": "f32"}


def assemble(
    builder: Builder, parameters: list[str], block: tuple[int, int, int], cluster: tuple[int, int, int]
) -> tuple[str, dict[int, tuple[str, int]]]:
    """Return the PTX text and its source map (line of the text to Python file and line).

    ``parameters``: their declarations in order.
    """
    head = [f".version {_VERSION}", f".target {_TARGET}", ".address_size 64", ""]
    if builder.shared_bytes:
        head += [".extern .shared .align 1024 .b8 dynamic_shared[];", ""]
    head += _signature(builder.name, parameters)
    head += [f".maxntid {', '.join(map(str, block))}", ".minnctapersm 1"]
    if cluster != (1, 1, 1):
        head += [f".reqnctapercluster {', '.join(map(str, cluster))}"]
    head += ["{", *_declarations(builder)]
    files: dict[str, int] = {}
    body, source_map = _body(builder, files, len(head))
    tail = ["}", *(f'.file {index} "{name}"' for name, index in files.items()), ""]
    return "\n".join(head + body + tail), source_map


def _signature(name: str, parameters: list[str]) -> list[str]:
    declared = [f"    {parameter}" for parameter in parameters]
    return [f".visible .entry {name}(", *(d + "," for d in declared[:-1]), *declared[-1:], ")"]


def _declarations(builder: Builder) -> list[str]:
    numbered = [f".reg .{_KINDS[kind]} %{kind}<{count}>" for kind, count in sorted(builder.register_counts.items())]
    return [f"    {declaration};" for declaration in [*numbered, *builder.declarations]]


def _body(builder: Builder, files: dict[str, int], lines_before: int) -> tuple[list[str], dict[int, tuple[str, int]]]:
    body: list[str] = []
    source_map: dict[int, tuple[str, int]] = {}
    last: Location | None = None
    names = {file: portable_name(file) for file in {line.location.file for line in builder.lines}}
    for n, line in enumerate(builder.lines):
        indent = "    " * (line.depth + 1)
        if line.location != last and _begins_instructions(builder.lines, n):
            last = line.location
            index = files.setdefault(names[last.file], len(files) + 1)
            body += ["", f"{indent}// {last.text}", f"{indent}.loc {index} {last.line} 0"]
        body.append(line.text if line.is_label else indent + line.text)
        source_map[lines_before + len(body)] = (line.location.file, line.location.line)
    return body, source_map


def _begins_instructions(lines: list[Line], n: int) -> bool:
    """Does line ``n`` begin instructions of its Python line? A label at the end of a block does not."""
    following = next((line for line in lines[n:] if not line.is_label), None)
    return following is not None and following.location == lines[n].location
