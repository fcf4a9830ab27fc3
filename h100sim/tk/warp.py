"""``warp.*``: what every warp does on its own register tiles and vectors, element by element.

Inside a warpgroup scope each of the four warps works on its own 16 rows. Destination first; ``_row`` operations take one value per
row (a col_vec), ``_col`` operations one per column (a row_vec), as in ThunderKittens.
"""

from __future__ import annotations

from .builder import current, require_scope
from .control import elect  # noqa: F401


def zero(dst):
    for r in dst.registers:
        current().emit(f"mov.f32 {r}, 0f00000000")
