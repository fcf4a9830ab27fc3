"""``h100sim layout``: pictures of layouts as SVG files, and the same as numbers with ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError

app = typer.Typer(help="Draw where data lies: swizzles, fragments, descriptors, bank conflicts, TMA boxes.")

Out = Annotated[Path | None, typer.Option("--out", "-o", help="The SVG file; else one named after the picture.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with the path and the numbers.")]
Instruction = Annotated[str, typer.Argument(help="The whole opcode of an instruction of PTX.")]


@app.command("swizzle")
def draw_swizzle(
    mode: Annotated[str, typer.Argument(help="none, 32B, 64B or 128B.")],
    rows: Annotated[int, typer.Option(help="Rows of the tile.")] = 64,
    columns: Annotated[int, typer.Option(help="Columns of the tile, elements.")] = 64,
    element_bytes: Annotated[int, typer.Option(help="Bytes of an element.")] = 2,
    base: Annotated[int, typer.Option(help="Shared byte address of the tile.")] = 0,
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw a shared tile as the program sees it and as it lies in shared memory."""
    from ..layouts import pictures
    from ..layouts.swizzle import panel_addresses

    if min(rows, columns, element_bytes) < 1:
        raise UsageError(f"rows, columns and element bytes must be positive, not {rows}, {columns} and {element_bytes}")
    picture = pictures.draw_swizzle(rows, columns, element_bytes, mode, base)
    return _finish("swizzle", out, picture, json, lambda: {"addresses": panel_addresses(rows, columns, element_bytes, mode, base)})


@app.command("fragment")
def draw_fragment(
    instruction: Instruction,
    which: Annotated[str, typer.Argument(help="a, b, c or d; of wgmma a or d.")] = "d",
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw which lane and register hold each element of a register operand.

    For example: h100sim layout fragment mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 b
    """
    from ..layouts import fragment, pictures

    def numbers() -> dict[str, Any]:
        owners = fragment(instruction, which)
        return {name: owners[name] for name in owners.dtype.names or ()}

    return _finish("fragment", out, pictures.draw_fragment(instruction, which), json, numbers)


@app.command("descriptor")
def draw_descriptor(
    instruction: Instruction,
    which: Annotated[str, typer.Argument(help="a or b.")],
    descriptor: Annotated[str, typer.Argument(help="The 64-bit matrix descriptor, 0x... or decimal.")],
    transpose: Annotated[bool, typer.Option("--transpose", help="The operand is MN-major.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw where in shared memory a wgmma matrix descriptor finds an operand.

    For example, with the opcode wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16: b 0x4000004000010040
    """
    from ..layouts import operand_addresses, pictures

    try:
        bits = int(descriptor, 0)
    except ValueError:
        raise UsageError(f"descriptor must be a 64-bit integer, not {descriptor}") from None
    picture = pictures.draw_descriptor(instruction, which, bits, transpose)
    return _finish("descriptor", out, picture, json, lambda: {"addresses": operand_addresses(instruction, which, bits, transpose)})


@app.command("algebra")
def draw_algebra(
    layout: Annotated[str, typer.Argument(help="shape:stride, as (4,8):(1,4) or (4,8); first mode down, second across.")],
    compose: Annotated[str | None, typer.Option(help="Draw this layout followed by LAYOUT.")] = None,
    divide: Annotated[str | None, typer.Option(help="Draw LAYOUT divided by this tiler: tile down, tiles across.")] = None,
    multiply: Annotated[str | None, typer.Option(help="Draw LAYOUT repeated as this tiler says.")] = None,
    complement: Annotated[int | None, typer.Option(help="Draw what LAYOUT leaves out of so many offsets.")] = None,
    inverse: Annotated[bool, typer.Option("--inverse", help="Draw the right inverse of LAYOUT.")] = False,
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw the offsets of a layout of the algebra, or of what an operation makes of it."""
    from ..layouts import algebra, pictures

    shown = algebra.Layout.parse(layout)
    if compose is not None:
        shown = algebra.composition(shown, algebra.Layout.parse(compose))
    if divide is not None:
        shown = algebra.logical_divide(shown, algebra.Layout.parse(divide))
    if multiply is not None:
        shown = algebra.logical_product(shown, algebra.Layout.parse(multiply))
    if complement is not None:
        shown = algebra.complement(shown, complement)
    if inverse:
        shown = algebra.right_inverse(shown)
    return _finish("algebra", out, pictures.draw_layout(shown), json, lambda: {"layout": str(shown), "offsets": shown.offsets()})


@app.command("banks")
def draw_banks(
    addresses: Annotated[str, typer.Argument(help="Shared byte address of each lane: 0,4,8,... or stride:128.")],
    width: Annotated[int, typer.Option(help="Bytes that each lane accesses.")] = 4,
    kind: Annotated[str, typer.Option(help="load, store, or matrix: rows of ldmatrix and stmatrix.")] = "load",
    swizzle: Annotated[str, typer.Option(help="Swizzle the addresses first: none, 32B, 64B or 128B.")] = "none",
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw which lanes of a shared-memory access meet in which bank."""
    from ..layouts import banks, pictures
    from ..layouts.swizzle import swizzle as swizzled

    lanes = [swizzled(address, swizzle) for address in _lane_addresses(addresses)]
    if kind == "matrix":
        width = 16
    picture = pictures.draw_banks(lanes, width, kind)

    def numbers() -> dict[str, Any]:
        taken, least = banks.wavefronts(lanes, width, kind)
        return {"addresses": lanes, "wavefronts": taken, "without_conflicts": least}

    return _finish("banks", out, picture, json, numbers)


@app.command("box")
def draw_box(
    tensor: Annotated[str, typer.Argument(help="A tensor map: map:zeros:bf16:256x256;box=64x64;swizzle=128B.")],
    at: Annotated[str, typer.Option(help="Start coordinates, outermost first: 0,0.")] = "0,0",
    out: Out = None,
    json: Json = False,
) -> int:
    """Draw the box of a TMA copy in its tensor, with what lies outside."""
    from ..layouts import pictures
    from .arguments import MapArgument, kernel_argument
    from .target import tensor_map

    found = kernel_argument(tensor)
    if not isinstance(found, MapArgument):
        raise UsageError(f"tensor must be a map such as map:zeros:bf16:256x256;box=64x64, not {tensor}")
    try:
        coordinates = [int(part) for part in at.split(",")][::-1]
    except ValueError:
        raise UsageError(f"--at must be integers such as 0,0, not {at}") from None
    picture = pictures.draw_box(tensor_map(found, address=0), coordinates)
    return _finish("box", out, picture, json, lambda: {"box": found.box, "coordinates": coordinates[::-1]})


def _lane_addresses(text: str) -> list[int]:
    """Return the addresses of "0,4,8" or of "stride:128" (32 lanes)."""
    try:
        if text.startswith("stride:"):
            return [int(text.removeprefix("stride:"), 0) * lane for lane in range(32)]
        return [int(part, 0) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"addresses must be integers such as 0,4,8 or stride:128, not {text}") from None


def _finish(name: str, out: Path | None, picture: str, json: bool, numbers: Any) -> int:
    """Write the picture and say where, or print the numbers too."""
    path = out or Path(f"{name}.svg")
    try:
        path.write_text(picture)
    except OSError as error:
        raise UsageError(f"--out must be a file that can be written, not {path} ({error.strerror})") from None
    if not json:
        print(path)
        return 0
    from .output import as_json

    plain = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in numbers().items()}
    answer = {"command": f"layout {name}", "status": "clean", "exit_status": 0, "path": str(path)}
    as_json({**answer, **plain}, indent=None)
    return 0
