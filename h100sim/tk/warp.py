"""``warp.*``: what every warp does on its own register tiles and vectors, and the moves and barriers of a single warp.

Inside a warpgroup scope each of the four warps works on its own 16 rows. Destination first; ``_row`` operations take
one value per row (a col_vec), ``_col`` operations one per column (a row_vec), as in ThunderKittens.
"""

from __future__ import annotations

from . import moves, shared_moves
from .builder import current, require_scope
from .complex_tiles import componentwise
from .control import elect
from .global_memory import GlobalTensor
from .maps import absolute as abs
from .maps import (
    add,
    add_col,
    add_row,
    broadcast_col,
    broadcast_row,
    copy,
    cos,
    div,
    div_col,
    div_row,
    exp,
    exp2,
    fill,
    fma,
    log,
    log2,
    max_col,
    max_row,
    min_col,
    min_row,
    mul,
    mul_col,
    mul_row,
    neg,
    neg_infty,
    one,
    pos_infty,
    rcp,
    relu,
    rsqrt,
    sin,
    sqrt,
    sub,
    sub_col,
    sub_row,
    tanh,
    zero,
)
from .maps import maximum as max
from .maps import minimum as min
from .masks import apply, left_fill, lower_fill, make_causal, make_causal_t, right_fill, tril, triu, upper_fill
from .rearrange import swap_layout, swap_layout_inplace, transpose_inplace, transpose_sep
from .reductions import (
    col_max,
    col_min,
    col_prod,
    col_sum,
    row_max,
    row_min,
    row_prod,
    row_sum,
    vec_max,
    vec_min,
    vec_prod,
    vec_sum,
)
from .register_tiles import RegisterTile
from .register_vectors import RegisterVector
from .scalars import Scalar
from .semaphores import Semaphore
from .semaphores import arrive as arrive_one
from .tiles import SharedTile, SharedVector
from .warp_mma import mma_AB, mma_ABt, mma_AtB, mma_AtBt

__all__ = [
    "abs",
    "add",
    "add_col",
    "add_row",
    "apply",
    "arrive",
    "broadcast_col",
    "broadcast_row",
    "col_max",
    "col_min",
    "col_prod",
    "col_sum",
    "copy",
    "cos",
    "div",
    "div_col",
    "div_row",
    "exp",
    "exp2",
    "fill",
    "fma",
    "left_fill",
    "load",
    "load_async",
    "log",
    "log2",
    "lower_fill",
    "make_causal",
    "make_causal_t",
    "max",
    "max_col",
    "max_row",
    "min",
    "min_col",
    "min_row",
    "mma_AB",
    "mma_ABt",
    "mma_AtB",
    "mma_AtBt",
    "mul",
    "mul_col",
    "mul_row",
    "neg",
    "neg_infty",
    "one",
    "pos_infty",
    "rcp",
    "relu",
    "right_fill",
    "row_max",
    "row_min",
    "row_prod",
    "row_sum",
    "rsqrt",
    "sin",
    "sqrt",
    "store",
    "sub",
    "sub_col",
    "sub_row",
    "swap_layout",
    "swap_layout_inplace",
    "sync",
    "tanh",
    "transpose_inplace",
    "transpose_sep",
    "tril",
    "triu",
    "upper_fill",
    "vec_max",
    "vec_min",
    "vec_prod",
    "vec_sum",
    "zero",
]


def sync() -> None:
    """Wait for the lanes of the warp, and order their memory accesses before and after. PTX: ``bar.warp.sync``."""
    require_scope("warp.sync", "cta", "warpgroup", "warp")
    current().emit("bar.warp.sync 0xffffffff")


def arrive(sem: Semaphore, count: int = 1) -> None:
    """Arrive ``count`` times for each warp, by one of its lanes. PTX: ``elect.sync``, ``mbarrier.arrive``."""
    scope = require_scope("warp.arrive", "cta", "warpgroup", "warp")
    with elect(each_warp=scope.level != "warp"):
        arrive_one(sem, count)


@componentwise
def load(
    dst: RegisterTile | RegisterVector | SharedTile,
    src: SharedTile | SharedVector | GlobalTensor,
    coord: tuple[Scalar, ...] | None = None,
) -> None:
    """Read a shared tile or vector, or tile ``coord`` of a global tensor, into the warp's registers; or tile
    ``coord`` of a global tensor into a shared tile. PTX: ``ldmatrix`` (f32: ``ld.shared``) or ``ld.global``, and
    ``cvt`` between types; into a shared tile ``ld.global.v4``, ``st.shared.v4``, ``fence.proxy.async``.
    """
    require_scope("warp.load", "cta", "warpgroup", "warp")
    moves.load("warp.load", dst, src, coord, 1)


@componentwise
def store(
    dst: SharedTile | SharedVector | GlobalTensor,
    src: RegisterTile | RegisterVector | SharedTile,
    coord: tuple[Scalar, ...] | None = None,
) -> None:
    """Write the warp's registers to a shared tile or vector (then fence for TMA and wgmma), or to tile ``coord`` of a
    global tensor. PTX: ``stmatrix`` (f32: ``st.shared``) and ``fence.proxy.async``, or ``st.global``, and ``cvt``
    between types; from a shared tile ``ld.shared.v4``, ``st.global.v4``.
    """
    require_scope("warp.store", "cta", "warpgroup", "warp")
    moves.store("warp.store", dst, src, coord, 1)


def load_async(dst: SharedTile, src: GlobalTensor, coord: tuple[Scalar, ...]) -> None:
    """Start to copy tile ``coord`` of a tensor into a shared tile with the warp's lanes, as a group of its own for
    ``tk.load_async_wait``. PTX: ``cp.async``, ``cp.async.commit_group``.
    """
    require_scope("warp.load_async", "cta", "warpgroup", "warp")
    shared_moves.load_async("warp.load_async", dst, src, coord, 1)
