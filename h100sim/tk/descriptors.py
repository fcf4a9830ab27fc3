"""The matrix descriptors with which wgmma finds a shared tile, and where each step of K begins.

Spec: PTX ISA 9.1, "Matrix Descriptor Format", "Strides" of wgmma. Leading and stride byte offsets are ThunderKittens'
for its column-panel tiles; S is the swizzle width and R the rows of a panel.
"""

from __future__ import annotations

from dataclasses import dataclass

from .builder import current, usage
from .tiles import SharedTile

#: K of one wgmma step in bytes, for every element type.
STEP_BYTES = 32
_MODES = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Operand:
    """A shared tile as wgmma operand. ``base`` is the register with the descriptor of step 0, ``step_offsets`` the
    distance in bytes of every step from it, ``transpose`` the imm-trans bit (1: MN-major, K runs along the rows of
    the tile).
    """

    base: str
    step_offsets: tuple[int, ...]
    transpose: int

    def descriptor(self, step: int) -> str:
        """Return a register with the descriptor of a step of K."""
        if self.step_offsets[step] == 0:
            return self.base
        register = current().register("rd")
        current().emit(f"add.s64 {register}, {self.base}, {self.step_offsets[step] >> 4}")
        return register


def operand(tile: SharedTile, k_along_rows: bool) -> Operand:
    """Emit the descriptor of ``tile``. Raises UsageError for tiles that wgmma cannot read."""
    if tile.count:
        raise usage(f"mma operand must be one tile, not the array {tile.name}")
    if not tile.swizzle:
        raise usage(f"mma operand must be a swizzled tile, not the row-major {tile}")
    if tile.first_col:
        raise usage(f"mma operand must begin at a panel of {tile.panel_cols} columns, not at column {tile.first_col} of one")
    size, s, rows = tile.dtype.size_bytes, tile.swizzle, tile.panel_rows
    if k_along_rows:
        if size != 2:
            raise usage(
                f"mma operand of {tile.dtype} must be K-major (mma_ABt), not a tile whose rows run along K",
                'PTX ISA 9.1, "wgmma.mma_async": imm-trans is for .f16 and .bf16 only',
            )
        step_rows = STEP_BYTES // size
        offsets = tuple(i * step_rows * s for i in range(tile.rows // step_rows))
        leading = rows * s
    else:
        per_panel = s // STEP_BYTES
        steps = tile.cols * size // STEP_BYTES
        offsets = tuple(i % per_panel * STEP_BYTES + i // per_panel * rows * s for i in range(steps))
        leading = 16
    fields = (leading >> 4) << 16 | (8 * s >> 4) << 32 | _MODES[s] << 62
    return Operand(_emit(tile, fields), offsets, int(k_along_rows))


def _emit(tile: SharedTile, fields: int) -> str:
    builder = current()
    address, start, wide, descriptor = (
        tile.address.in_register(),
        builder.register(),
        builder.register("rd"),
        builder.register("rd"),
    )
    # Bits 4 to 17 of the address: the bits above name the CTA of the cluster.
    builder.emit(f"bfe.u32 {start}, {address}, 4, 14")
    builder.emit(f"cvt.u64.u32 {wide}, {start}")
    builder.emit(f"or.b64 {descriptor}, {wide}, {fields:#018x}")
    return descriptor
