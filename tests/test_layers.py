"""Who may import whom, read from the import statements themselves.

Data flows one way: what an instruction does knows nothing of time, time knows nothing of checks, and those who look at
a run see its trace alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("h100sim", "tk_programs", "viz", "validate")

#: What the lower layers must never import. The words of the right side are modules or packages.
FORBIDDEN = {
    "h100sim.ptx": "engine machine units checks tk host debugger program isa numerics memory state services",
    "h100sim.isa": "engine machine units checks tk host debugger program",
    "h100sim.numerics": "engine machine units checks tk host debugger program isa memory state services ptx",
    "h100sim.layouts": "engine machine units checks tk host debugger program isa memory state services",
    "h100sim.memory": "engine machine units checks tk host debugger program isa",
    "h100sim.units": "machine checks tk host debugger",
    "h100sim.engine": "machine checks tk host debugger program",
    "h100sim.trace": "engine machine units checks tk host debugger program isa numerics memory state services ptx",
    "h100sim.tk": "engine machine units checks host isa memory numerics state services program",
}

#: What may be imported inside functions all the same, by the doors that users come through: ``h100sim.scalar`` looks an
#: opcode up, and a kernel of the DSL runs itself.
DOORS = {"h100sim.numerics": "h100sim.isa h100sim.ptx", "h100sim.tk": "h100sim.host validate"}

#: What the onlookers may import of h100sim, besides their own package.
ALLOWED = {
    "h100sim.checks": "trace hazard intervals layouts ptx errors dtypes native memory.windows words",
    "viz": "trace intervals critical_path layouts ptx errors dtypes words",
}


def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """Return (module, line, whether inside a function) of every import that runs, so not ``if TYPE_CHECKING``."""
    module = path.relative_to(ROOT).with_suffix("").parts
    package = module if path.name == "__init__.py" else module[:-1]
    package = tuple(part for part in package if part != "__init__")
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join((*base, *([node.module] if node.module else [])))
            found.extend((f"{start}.{alias.name}", node.lineno, inside) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(path.read_text()), inside=False)
    return found


def sources(package: str) -> list[Path]:
    """Return the source files of a package or module."""
    path = ROOT.joinpath(*package.split("."))
    return sorted(path.rglob("*.py")) if path.is_dir() else [p for p in [path.with_suffix(".py")] if p.exists()]


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", FORBIDDEN)
def test_lower_layers_do_not_import_higher_ones(package: str) -> None:
    above = ["viz", "validate", "tk_programs", *(f"h100sim.{name}" for name in FORBIDDEN[package].split())]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(package)
        for name, line, inside in imports_of(path)
        if any(is_within(name, other) for other in above)
        and not (inside and any(is_within(name, door) for door in DOORS.get(package, "").split()))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ALLOWED)
def test_onlookers_see_the_trace_alone(package: str) -> None:
    allowed = [package, *(f"h100sim.{name}" for name in ALLOWED[package].split())]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(package)
        for name, line, _ in imports_of(path)
        if name.split(".")[0] in PACKAGES and not any(is_within(name, other) for other in allowed)
    ]
    assert wrong == []


def test_only_the_command_line_and_the_dsl_reach_outside_the_package() -> None:
    """h100sim never imports the views, the programs or the silicon side, except inside functions of cli/ and tk/."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources("h100sim")
        for name, line, inside in imports_of(path)
        if name.split(".")[0] in ("viz", "validate", "tk_programs")
        and not (inside and path.relative_to(ROOT).parts[1] in ("cli.py", "cli", "tk"))
    ]
    assert wrong == []


def test_importing_the_package_compiles_and_loads_nothing_heavy() -> None:
    """``import h100sim`` must stay instant: no NumPy, Numba or Dash."""
    heavy = ("numpy", "numba", "dash", "plotly", "networkx", "typer")
    wrong = [name for name, _, inside in imports_of(ROOT / "h100sim/__init__.py") if name.split(".")[0] in heavy and not inside]
    assert wrong == []
