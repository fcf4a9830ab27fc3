"""Pictures of layouts as SVG text: swizzles, fragments, wgmma descriptors, layouts of the algebra, bank conflicts, TMA boxes.

Every picture states its unit (bytes or elements) and what its labels mean; each cell says more on hover. Large tiles
are cut after the part that repeats, and the caption says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from h100sim.errors import UsageError
from h100sim.layouts.algebra import Layout
from h100sim.layouts.banks import banks, wavefronts
from h100sim.layouts.descriptor import MatrixDescriptor, operand_addresses, operand_shape
from h100sim.layouts.fragments import fragment
from h100sim.layouts.svg import TINTS, WARNING, Drawing
from h100sim.layouts.swizzle import panel_addresses, span_of
from h100sim.numerics.wgmma import parse_wgmma

if TYPE_CHECKING:
    from h100sim.tma.tensor_map import TensorMap

_ROWS_SHOWN = 64
_BANKS_LEFT = 80
#: What waits in a picture of banks.
_WAITS = "#f0a070"
_CHUNK_WIDTH, _ROW_HEIGHT = 62, 18
#: Neighbours that one lane holds, per row of a fragment, and how wide they are drawn: 64 columns of an accumulator.
_RUNS_SHOWN, _OWNER_WIDTH = 32, 36
_COLUMNS_SHOWN = 64


def draw_swizzle(rows: int, columns: int, element_bytes: int, swizzle: str | int, base: int = 0) -> str:
    """Draw a tile of ``rows`` x ``columns`` elements twice: as the program sees it, and as it lies in shared memory.

    The tile is stored as column panels as wide as the swizzle (see :func:`h100sim.layouts.swizzle.panel_addresses`)
    from shared byte address ``base``. A cell is a chunk of 16 bytes.
    """
    if columns * element_bytes % 16:
        raise UsageError(f"tile row must be a multiple of 16 bytes, not {columns * element_bytes}")
    per_chunk, shown = 16 // element_bytes, min(rows, _ROWS_SHOWN)
    addresses = panel_addresses(rows, columns, element_bytes, swizzle, base)[:shown, ::per_chunk]
    span = span_of(swizzle)
    name = "no swizzle" if span == 16 else f"{span}-byte swizzle"
    captions = [
        f"A cell is a 16-byte chunk, {per_chunk} elements of {element_bytes} bytes. Colour: its place in its row.",
        "Left, the tile in elements: a cell's number is the 16-byte place in its 128-byte line. "
        "Right, shared memory in bytes: a cell names row, first column.",
    ]
    if shown < rows:
        captions.append(f"Rows 0 to {shown - 1} of {rows}; the pattern repeats every {max(8 * span // 128, 8)} rows.")
    drawing = Drawing(f"{rows} x {columns} tile, {name}", tuple(captions))
    lines = sorted({int(a) // 128 for a in addresses.ravel()})
    width = 34 if addresses.shape[1] > 8 else 44
    left = 46
    right = left + width * addresses.shape[1] + 90
    drawing.text(left, 12, "row \\ column (elements)")
    drawing.text(right, 12, "address (bytes) \\ banks of 4 bytes")
    for c in range(addresses.shape[1]):
        drawing.text(left + width * (c + 0.5), 28, str(c * per_chunk), "m")
    for place in range(8):
        drawing.text(right + _CHUNK_WIDTH * (place + 0.5), 28, f"{4 * place}-{4 * place + 3}", "m")
    for r in range(shown):
        drawing.text(left - 6, 34 + _ROW_HEIGHT * r + 13, str(r), "e")
    for i, line in enumerate(lines):
        drawing.text(right - 6, 34 + _ROW_HEIGHT * i + 13, f"{128 * line:#06x}", "e")
    index = {line: i for i, line in enumerate(lines)}
    for (r, c), address in np.ndenumerate(addresses):
        at, place = int(address), int(address) % 128 // 16
        words = (
            f"row {r}, columns {c * per_chunk}-{(c + 1) * per_chunk - 1}\n"
            f"address {at:#06x}, banks {4 * place}-{4 * place + 3}, chunk {place} of its line"
        )
        tint = f"c{c % 8}"
        drawing.cell(left + width * c, 34 + _ROW_HEIGHT * r, width, _ROW_HEIGHT, str(place), words, tint)
        y = 34 + _ROW_HEIGHT * index[at // 128]
        drawing.cell(right + _CHUNK_WIDTH * place, y, _CHUNK_WIDTH, _ROW_HEIGHT, f"{r}, {c * per_chunk}", words, tint)
    return drawing.to_svg()


def draw_fragment(instr: str, which: str) -> str:
    """Draw which lane and register hold each element of a register operand (see
    :func:`h100sim.layouts.fragments.fragment`)."""
    owners = fragment(instr, which)
    return draw_owners(owners, *owners.title)


def draw_owners(owners: np.ndarray, title: str, *captions: str) -> str:
    """Draw which lane and register hold each element; ``owners``: FRAGMENT records (rows, columns)."""
    rows, columns = owners.shape
    run = _runs(owners[0])[0][1]
    shown = owners[:, : _RUNS_SHOWN * run]
    is_move = "matrix" in title.split(" ")[0]
    per_block = 8 if is_move else 16
    captions = (
        *captions[:-1],
        f"{captions[-1]} In elements. Label: lane : first register that holds them. Colour: that register, modulo 8.",
        *([f"Columns 0 to {shown.shape[1] - 1} of {columns}."] if shown.shape[1] < columns else []),
    )
    drawing = Drawing(title, captions)
    right = 30 + _OWNER_WIDTH * len(_runs(shown[0]))
    drawing.text(0, 12, "row")
    for i, (first, last) in enumerate(_runs(shown[0])):
        label = str(first) if last == first + 1 else f"{first}-{last - 1}"
        drawing.text(30 + _OWNER_WIDTH * (i + 0.5), 12, label, "m")
    for r in range(rows):
        y = 18 + _ROW_HEIGHT * r + 6 * (r // per_block)
        drawing.text(24, y + 13, str(r), "e")
        if r % per_block == 0 and rows > per_block:
            block = f"matrix {r // per_block}" if is_move else f"warp {owners['warp'][r, 0]}"
            drawing.text(right + 8, y + 13, block)
        cells = (
            (30 + _OWNER_WIDTH * i, *_owner((r, first), shown[r, first:last])) for i, (first, last) in enumerate(_runs(shown[r]))
        )
        drawing.row(y, _OWNER_WIDTH, _ROW_HEIGHT, cells)
    return drawing.to_svg()


def _owner(at: tuple[int, int], owners: np.ndarray) -> tuple[str, str, str]:
    """Return (label, tooltip, class) of neighbours in a row that one lane holds; ``at``: row and first column."""
    held = sorted({int(x) for x in owners["register"]})
    registers = f"register {held[0]}" if len(held) == 1 else f"registers {held[0]}-{held[-1]}"
    bits = sorted({int(x) for x in owners["bit"]})
    where = "" if len(bits) == 1 else f", bits from {bits[0]} to {bits[-1]} in steps of {bits[1] - bits[0]}"
    row, first = at
    columns = f"column {first}" if len(owners) == 1 else f"columns {first}-{first + len(owners) - 1}"
    warp, lane = owners["warp"][0], owners["lane"][0]
    tooltip = f"row {row}, {columns}\nwarp {warp}, lane {lane}, {registers}{where}"
    return f"{lane}:{held[0]}", tooltip, f"c{held[0] % 8}"


def _runs(row: np.ndarray) -> list[tuple[int, int]]:
    """Return [first, last) of the runs of neighbours in one row that one lane of one warp holds."""
    keys = row["warp"] * 32 + row["lane"]
    edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(row)]
    return list(pairwise(edges))


def draw_descriptor(instr: str, which: str, descriptor: int | MatrixDescriptor, transpose: bool = False) -> str:
    """Draw where in shared memory a wgmma matrix descriptor finds each 16-byte chunk of an operand."""
    addresses = operand_addresses(instr, which, descriptor, transpose)
    found = descriptor if isinstance(descriptor, MatrixDescriptor) else MatrixDescriptor.decode(descriptor)
    _, element, _ = operand_shape(parse_wgmma(instr), which)
    side = "M" if which == "a" else "N"
    chunks: dict[int, list[tuple[str, str, int]]] = {}
    for label, words, group, address in _operand_chunks(addresses, element.bits, transpose, side):
        chunks.setdefault(address // 16 * 16, []).append((label, words, group))
    lines = sorted({a // 128 for a in chunks})
    shown = lines[:_ROWS_SHOWN]
    major = f"{side}-major (transposed)" if transpose else "K-major"
    captions = (
        instr,
        f"{major}, start {found.start_address:#x}, leading byte offset {found.leading_byte_offset:,}, "
        f"stride byte offset {found.stride_byte_offset:,}, swizzle {found.swizzle}, base offset {found.base_offset}",
        f"Shared memory in lines of 128 bytes; a cell is a 16-byte chunk. Label: "
        f"{f'k and first {side.lower()}' if transpose else f'{side.lower()} and first k'}. Colour: the core matrix.",
        *([f"The first {len(shown)} of {len(lines)} lines that it touches."] if len(shown) < len(lines) else []),
    )
    drawing = Drawing(f"wgmma operand {which.upper()} of {element}, {addresses.shape[0]} x {addresses.shape[1]}", captions)
    drawing.text(0, 12, "address \\ banks")
    for place in range(8):
        drawing.text(100 + _CHUNK_WIDTH * (place + 0.5), 12, f"{4 * place}-{4 * place + 3}", "m")
    y, before = 18.0, shown[0]
    for line in shown:
        if line > before + 1:
            gap = 128 * (line - before - 1)
            drawing.text(100, y + 12, f"{gap:,} bytes not touched")
            y += _ROW_HEIGHT
        before = line
        drawing.text(92, y + 13, f"{128 * line:#07x}", "e")
        for place in range(8):
            _draw_chunk(drawing, 100 + _CHUNK_WIDTH * place, y, 128 * line + 16 * place, chunks)
        y += _ROW_HEIGHT
    return drawing.to_svg()


def _operand_chunks(addresses: np.ndarray, bits: int, transpose: bool, side: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (label, words, core matrix, address) of every 16-byte chunk of an operand (rows, K)."""
    rows, depth = addresses.shape
    per_chunk = 128 // bits
    if transpose:
        for k in range(depth):
            for r in range(0, rows, 8):
                words = f"k {k}, {side.lower()} {r}-{r + 7}"
                yield f"{k}, {r}", words, r // 8 + k // 8 * (rows // 8), int(addresses[r, k])
    else:
        for r in range(rows):
            for k in range(0, depth, per_chunk):
                words = f"{side.lower()} {r}, k {k}-{k + per_chunk - 1}"
                yield f"{r}, {k}", words, r // 8 + k // per_chunk * (rows // 8), int(addresses[r, k])


def _draw_chunk(drawing: Drawing, x: float, y: float, address: int, chunks: dict[int, list[tuple[str, str, int]]]) -> None:
    held = chunks.get(address, [])
    if not held:
        drawing.cell(x, y, _CHUNK_WIDTH, _ROW_HEIGHT, "", f"address {address:#x}: not touched", 'fill="#f3f4f6"')
        return
    words = "\n".join([f"address {address:#x}", *(w for _, w, _ in held)])
    if len(held) > 1:
        drawing.cell(x, y, _CHUNK_WIDTH, _ROW_HEIGHT, f"{len(held)} chunks", words, f'fill="{WARNING}"')
        return
    label, _, group = held[0]
    drawing.cell(x, y, _CHUNK_WIDTH, _ROW_HEIGHT, label, words, f"c{group % 8}")


def draw_banks(addresses: Sequence[int], width_bytes: int, kind: str = "load") -> str:
    """Draw which lanes of a warp meet in which bank: more than one word in a bank is a conflict.

    Arguments as in :func:`h100sim.layouts.banks.wavefronts`.
    """
    taken, least = wavefronts(addresses, width_bytes, kind)
    groups = banks(addresses, width_bytes, kind)
    together = 32 // len(groups) if kind != "matrix" else 8
    lanes = len([address for address in addresses if address >= 0])
    captions = (
        f"32 banks of 4 bytes; {lanes} {'rows of matrices' if kind == 'matrix' else 'lanes'}, {kind}, "
        f"{width_bytes} byte{'s' * (width_bytes > 1)} each, "
        f"{together} of them served together.",
        f"{taken} wavefront{'s' * (taken > 1)}, {least} without bank conflicts. A line is a wavefront, a cell a word of "
        "4 bytes. Label: its first lane, + if several share it.",
    )
    title = f"Bank conflicts: {taken} wavefronts instead of {least}" if taken > least else "No bank conflicts"
    drawing = Drawing(title, captions)
    drawing.legend(0, 0, [("c0", "served first"), (f'fill="{_WAITS}"', "waits for another word of its bank")])
    size, y = 30, 44.0
    for bank in range(32):
        drawing.text(_BANKS_LEFT + size * (bank + 0.5), 38, str(bank), "m")
    drawing.text(0, 38, "bank")
    for g, held in enumerate(groups):
        turns = max((len(words) for words in held.values()), default=1)
        drawing.text(0, y + 13, f"lanes {g * together}-{(g + 1) * together - 1}")
        for turn in range(turns):
            _draw_wavefront(drawing, y, turn, held, size)
            y += _ROW_HEIGHT
        y += 8
    return drawing.to_svg()


def _draw_wavefront(drawing: Drawing, y: float, turn: int, held: dict[int, dict[int, list[int]]], size: int) -> None:
    for bank in range(32):
        words = sorted(held.get(bank, {}).items())
        x = _BANKS_LEFT + size * bank
        if turn >= len(words):
            drawing.cell(x, y, size, _ROW_HEIGHT, "", "", 'fill="#f3f4f6"')
            continue
        word, lanes = words[turn]
        label = f"{lanes[0]}{'+' if len(lanes) > 1 else ''}"
        tooltip = f"address {4 * word:#x}, bank {bank}, wavefront {turn} of its group\nlanes {', '.join(map(str, lanes))}"
        drawing.cell(x, y, size, _ROW_HEIGHT, label, tooltip, f'fill="{TINTS[0] if turn == 0 else _WAITS}"')


def draw_layout(layout: Layout) -> str:
    """Draw the offsets of a layout: its first mode downwards, its second one to the right."""
    modes = layout.modes
    if len(modes) > 2:
        raise UsageError(f"layout of a picture must have 1 or 2 modes, not {len(modes)}")
    down, across = modes if len(modes) == 2 else (Layout(1, 0), modes[0])
    rows, columns = min(down.size, _ROWS_SHOWN), min(across.size, _COLUMNS_SHOWN)
    is_cut = (rows, columns) != (down.size, across.size)
    captions = (
        f"Layout {layout}: {layout.size} coordinates, offsets in elements from 0 to {layout.cosize - 1}.",
        "Down: the first mode; to the right: the second. Label: the offset. Colour: the offset, modulo 8."
        if len(modes) == 2
        else "Label: the offset. Colour: the offset, modulo 8.",
        *([f"The first {rows} x {columns} of {down.size} x {across.size}."] if is_cut else []),
    )
    drawing = Drawing(f"Layout {layout}", captions)
    for c in range(columns):
        drawing.text(30 + _OWNER_WIDTH * (c + 0.5), 12, str(c), "m")
    for r in range(rows):
        y = 18 + _ROW_HEIGHT * r
        drawing.text(24, y + 13, str(r), "e")
        offsets = [down(r) + across(c) for c in range(columns)]
        cells = ((30 + _OWNER_WIDTH * c, str(at), f"({r}, {c}): offset {at}", f"c{at % 8}") for c, at in enumerate(offsets))
        drawing.row(y, _OWNER_WIDTH, _ROW_HEIGHT, cells)
    return drawing.to_svg()


def draw_box(m: TensorMap, coords: Sequence[int]) -> str:
    """Draw a box of a tiled tensor map in the plane of dimensions 0 and 1 of its tensor, to scale, in elements."""
    if m.is_im2col or m.interleave != "none":
        raise UsageError("tensor map of a picture must be tiled and without interleave")
    if len(coords) != m.rank:
        raise UsageError(f"coordinates must be {m.rank} numbers, the rank of the tensor map, not {len(coords)}")
    dims, box, start = ((*t, 1)[:2] for t in (m.dims, m.box, coords))
    outer = all(0 <= c < d for c, d in zip(coords[2:], m.dims[2:], strict=True))
    low = [min(0, s) for s in start]
    high = [max(d, s + b) for d, s, b in zip(dims, start, box, strict=True)]
    scale = [min(24.0, extent / max(h - w, 1)) for extent, w, h in zip((760, 420), low, high, strict=True)]
    if max(scale) <= 4 * min(scale):
        scale = [min(scale)] * 2

    def area(x0: int, y0: int, x1: int, y1: int, look: str, words: str) -> None:
        x, y = 60 + (x0 - low[0]) * scale[0], 30 + (y0 - low[1]) * scale[1]
        wide, tall = (x1 - x0) * scale[0], (y1 - y0) * scale[1]
        rect = f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" style="{look}"/>'
        drawing.shape(f"<g><title>{words}</title>{rect}</g>", x + wide, y + tall)

    x0, y0 = max(start[0], 0), max(start[1], 0)
    x1, y1 = min(start[0] + box[0], dims[0]), min(start[1] + box[1], dims[1])
    inside = max(x1 - x0, 0) * max(y1 - y0, 0) if outer else 0
    drawing = Drawing(
        f"Box of {' x '.join(map(str, m.box))} {m.dtype} in a tensor of {' x '.join(map(str, m.dims))}",
        (
            "In elements, innermost dimension first (to the right); to scale" + ("." if scale[0] == scale[1] else " on each axis."),
            f"Box at {', '.join(map(str, coords))}. Of this plane {inside:,} of {box[0] * box[1]:,} elements lie in "
            f"the tensor; the rest are filled with {'NaNs' if m.oob_fill == 'nan' else 'zeros'}. "
            f"A copy of the box counts {m.box_bytes:,} bytes.",
            "Grey: the tensor. Blue: what is copied. Orange: the box, and what is filled in it.",
        ),
    )
    tensor = f"tensor: columns 0-{dims[0] - 1}, rows 0-{dims[1] - 1}"
    area(0, 0, dims[0], dims[1], "fill:#e5e7eb;stroke:#6b7280", tensor)
    whole = f"box: columns {start[0]}-{start[0] + box[0] - 1}, rows {start[1]}-{start[1] + box[1] - 1}"
    area(start[0], start[1], start[0] + box[0], start[1] + box[1], f"fill:{WARNING};fill-opacity:.25", whole)
    if inside:
        part = f"in the tensor: columns {x0}-{x1 - 1}, rows {y0}-{y1 - 1}"
        area(x0, y0, x1, y1, f"fill:{TINTS[0]}", part)
    area(start[0], start[1], start[0] + box[0], start[1] + box[1], f"fill:none;stroke:{WARNING};stroke-width:2", whole)
    for value, at in _ticks((start[0], start[0] + box[0], dims[0], 0), low[0], scale[0], 34):
        drawing.text(60 + at, 20, str(value), "m")
    for value, at in _ticks((start[1], start[1] + box[1], dims[1], 0), low[1], scale[1], 13):
        drawing.text(52, 34 + at, str(value), "e")
    return drawing.to_svg()


def _ticks(values: Sequence[int], low: int, scale: float, room: float) -> list[tuple[int, float]]:
    """Return (value, place in pixels) of those values whose labels do not run into an earlier one."""
    shown: list[tuple[int, float]] = []
    for value in values:
        at = (value - low) * scale
        if all(abs(at - other) >= room for _, other in shown):
            shown.append((value, at))
    return shown
