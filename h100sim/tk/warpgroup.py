"""``warpgroup.*``: what four warps do together: tensor-core products, tile loads and stores, barriers, register counts.

Names and lowering are ThunderKittens': ``mma_*`` accumulates and ``mm_*`` starts from zero; each call holds its own
fence, proxy fence and commit, and ``mma_async_wait`` waits for it. Element-wise operations and reductions are in
``warp``: every warp of the warpgroup executes them on its own rows. Spec: PTX ISA 9.1, "Asynchronous Warpgroup Level
Matrix Multiply-Accumulate Instructions", "setmaxnreg", "bar".
"""

from __future__ import annotations

from typing import Any

from . import moves, shared_moves
from .builder import current, require_scope, usage
from .complex_tiles import Complex, componentwise
from .control import elect, lane, warp_rank_in_group
from .descriptors import STEP_BYTES, operand
from .global_memory import GlobalTensor
from .register_tiles import RegisterTile
from .register_vectors import RegisterVector
from .scalars import Int, Scalar
from .semaphores import Barrier, Semaphore, arrive_at, sync_at
from .semaphores import arrive as arrive_one
from .tiles import BASE_ROWS, SharedTile, SharedVector, bf16, fl, fp8e4m3, fp8e5m2, half

_ROWS = 64


def mma_AB(d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile) -> None:  # noqa: N802
    """D += A B: A is 64 x K, B is K x N. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mma_AB", d, a, b, False, True, "1")


def mma_ABt(d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile) -> None:  # noqa: N802
    """D += A B^T: A is 64 x K, B is N x K. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mma_ABt", d, a, b, False, False, "1")


def mma_AtB(d: RegisterTile, a: SharedTile, b: SharedTile) -> None:  # noqa: N802
    """D += A^T B: A is K x 64, B is K x N. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mma_AtB", d, a, b, True, True, "1")


def mma_AtBt(d: RegisterTile, a: SharedTile, b: SharedTile) -> None:  # noqa: N802
    """D += A^T B^T: A is K x 64, B is N x K. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for
    each step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mma_AtBt", d, a, b, True, False, "1")


def mm_AB(d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile) -> None:  # noqa: N802
    """D = A B: A is 64 x K, B is K x N. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mm_AB", d, a, b, False, True, "0")


def mm_ABt(d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile) -> None:  # noqa: N802
    """D = A B^T: A is 64 x K, B is N x K. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mm_ABt", d, a, b, False, False, "0")


def mm_AtB(d: RegisterTile, a: SharedTile, b: SharedTile) -> None:  # noqa: N802
    """D = A^T B: A is K x 64, B is K x N. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mm_AtB", d, a, b, True, True, "0")


def mm_AtBt(d: RegisterTile, a: SharedTile, b: SharedTile) -> None:  # noqa: N802
    """D = A^T B^T: A is K x 64, B is N x K. PTX: ``wgmma.fence``, ``fence.proxy.async``, ``wgmma.mma_async`` for each
    step of K, ``wgmma.commit_group``.
    """
    _mma("warpgroup.mm_AtBt", d, a, b, True, False, "0")


def mma_fence() -> None:
    """Order this warpgroup's register accesses before the products that follow. Each mma call begins with one. PTX:
    ``wgmma.fence``.
    """
    require_scope("warpgroup.mma_fence", "warpgroup")
    current().emit("wgmma.fence.sync.aligned")


def mma_commit_group() -> None:
    """Close a group of products. Each mma call does so itself; one more makes an empty group. PTX:
    ``wgmma.commit_group``.
    """
    require_scope("warpgroup.mma_commit_group", "warpgroup")
    current().emit("wgmma.commit_group.sync.aligned")


def mma_async_wait(pending: int = 0) -> None:
    """Wait until at most ``pending`` of the last mma calls are unfinished. PTX: ``wgmma.wait_group``."""
    require_scope("warpgroup.mma_async_wait", "warpgroup")
    if not isinstance(pending, int) or not 0 <= pending <= 7:
        raise usage(f"pending groups of warpgroup.mma_async_wait must be from 0 to 7, not {pending}")
    current().emit(f"wgmma.wait_group.sync.aligned {pending}")


def _mma(name: str, d: Any, a: Any, b: Any, a_t: bool, b_k_rows: bool, scale_d: str, scale_a: int = 1) -> None:
    if any(isinstance(x, Complex) for x in (d, a, b)):
        _complex_mma(name, d, a, b, a_t, b_k_rows, scale_d)
        return
    require_scope(name, "warpgroup")
    k = _check_shapes(name, d, a, b, a_t, b_k_rows)
    builder = current()
    left = None if isinstance(a, RegisterTile) else operand(a, a_t)
    right = operand(b, b_k_rows)
    step = STEP_BYTES // b.dtype.size_bytes
    shape = f"m64n{d.cols}k{step}"
    opcode = f"wgmma.mma_async.sync.aligned.{shape}.{d.dtype}.{a.dtype}.{b.dtype}"
    sixteen_bit = b.dtype.size_bytes == 2
    steps = [(left.descriptor(i) if left else "", right.descriptor(i)) for i in range(k // step)]
    transposes = [str(o.transpose) for o in (left, right) if o is not None] if sixteen_bit else []
    builder.emit("wgmma.fence.sync.aligned")
    builder.emit("fence.proxy.async.shared::cta")
    for row in range(d.height):
        registers = ", ".join(r for j in range(d.width) for r in d.base(row, j))
        for i, (descriptor, b_operand) in enumerate(steps):
            rest = ", ".join(
                [descriptor or _fragment(a, row, i), b_operand, scale_d if i == 0 else "1", str(scale_a), "1", *transposes]
            )
            builder.emit(f"{opcode} {{{registers}}}, {rest}")
    builder.emit("wgmma.commit_group.sync.aligned")


def _complex_mma(name: str, d: Any, a: Any, b: Any, a_t: bool, b_k_rows: bool, scale_d: str) -> None:
    """Multiply complex matrices: four products, each a group of its own, one of them with A negated by wgmma."""
    if not all(isinstance(x, Complex) for x in (d, a, b)):
        raise usage(f"{name} operands must all be complex if one is, not {d}, {a} and {b}")
    _mma(name, d.real, a.real, b.real, a_t, b_k_rows, scale_d)
    _mma(name, d.real, a.imag, b.imag, a_t, b_k_rows, "1", -1)
    _mma(name, d.imag, a.real, b.imag, a_t, b_k_rows, scale_d)
    _mma(name, d.imag, a.imag, b.real, a_t, b_k_rows, "1")


def _fragment(a: SharedTile | RegisterTile, row: int, step: int) -> str:
    assert isinstance(a, RegisterTile), "operands that are not in shared memory are in registers"
    return "{" + ", ".join(a.base(row, step)) + "}"


def _check_shapes(name: str, d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile, a_t: bool, b_k_rows: bool) -> int:
    """Return K. Raises UsageError for operands that wgmma does not take."""
    if not isinstance(d, RegisterTile) or not isinstance(a, (SharedTile, RegisterTile)) or not isinstance(b, SharedTile):
        raise usage(f"{name} must be given D in registers, A in shared memory or registers and B in shared memory")
    if isinstance(a, RegisterTile) and a_t:
        raise usage(f"{name} A must be in shared memory, not in registers: only shared operands can be transposed")
    if isinstance(a, RegisterTile) and a.layout != "row":
        raise usage(f"{name} A in registers must be in row layout, not {a.layout}")
    in_registers = isinstance(a, RegisterTile)
    m, k = (a.cols, a.rows) if a_t else (a.rows, a.cols)
    k_b, n = (b.rows, b.cols) if b_k_rows else (b.cols, b.rows)
    if not in_registers and m != _ROWS:
        raise usage(f"{name} A must have {_ROWS} rows of D, not {m}: give each warpgroup a tile of its own")
    if k != k_b:
        raise usage(f"{name} B must have the {k} of A along K, not {k_b}")
    rows = a.rows if in_registers else BASE_ROWS
    if (d.rows, d.cols, d.layout) != (rows, n, "row"):
        raise usage(f"{name} D must be rt<{d.dtype}, {rows}, {n}> (a quarter of the {4 * rows} rows in each warp), not {d}")
    if n > 256:
        raise usage(f"{name} N must be at most 256, not {n}", 'PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Shape"')
    _check_types(name, d, a, b)
    return k


def _check_types(name: str, d: RegisterTile, a: SharedTile | RegisterTile, b: SharedTile) -> None:
    fp8 = (fp8e4m3, fp8e5m2)
    same = a.dtype is b.dtype and a.dtype in (bf16, half)
    if not same and not (a.dtype in fp8 and b.dtype in fp8):
        raise usage(f"{name} A and B must be both bf16, both f16, or both fp8, not {a.dtype} and {b.dtype}")
    if d.dtype is not fl and not (d.dtype is half and a.dtype is not bf16):
        raise usage(f"{name} D must be f32, or f16 for operands of f16 or fp8, not {d.dtype}")


@componentwise
def store(
    dst: SharedTile | SharedVector | GlobalTensor,
    src: RegisterTile | RegisterVector | SharedTile,
    coord: tuple[Scalar, ...] | None = None,
) -> None:
    """Write the four warps' register tiles to a shared tile or tile ``coord`` of a global tensor, or their col_vecs
    to a shared vector. Stores to shared memory end with the fence for TMA and wgmma; follow with ``sync``. PTX:
    ``stmatrix`` (f32: ``st.shared``) and ``fence.proxy.async``, or ``st.global``, and ``cvt`` between types; from a
    shared tile ``ld.shared.v4``, ``st.global.v4``.
    """
    require_scope("warpgroup.store", "warpgroup")
    moves.store("warpgroup.store", dst, src, coord, 4)


@componentwise
def load(
    dst: RegisterTile | RegisterVector | SharedTile,
    src: SharedTile | SharedVector | GlobalTensor,
    coord: tuple[Scalar, ...] | None = None,
) -> None:
    """Read a shared tile, a shared vector or tile ``coord`` of a global tensor into the four warps' registers; or
    tile ``coord`` into a shared tile, which ends with the fence for TMA and wgmma. PTX: ``ldmatrix`` (f32:
    ``ld.shared``) or ``ld.global``, and ``cvt`` between types; into a shared tile ``ld.global.v4``, ``st.shared.v4``,
    ``fence.proxy.async``.
    """
    require_scope("warpgroup.load", "warpgroup")
    moves.load("warpgroup.load", dst, src, coord, 4)


def load_async(dst: SharedTile, src: GlobalTensor, coord: tuple[Scalar, ...]) -> None:
    """Start to copy tile ``coord`` of a tensor into a shared tile with the warpgroup's threads, as a group of its own for
    ``tk.load_async_wait``. PTX: ``cp.async``, ``cp.async.commit_group``.
    """
    require_scope("warpgroup.load_async", "warpgroup")
    shared_moves.load_async("warpgroup.load_async", dst, src, coord, 4)


def warpid() -> Int:
    """Return the warp's rank in its warpgroup, 0 to 3. PTX: ``and``, once."""
    return Int(warp_rank_in_group(), nonnegative=True)


def laneid() -> Int:
    """Return the thread's rank in its warpgroup, 0 to 127. PTX: ``shl``, ``add``."""
    return warpid() * 32 + Int(lane(), nonnegative=True, divergent=True)


def sync(at: Scalar | Barrier) -> None:
    """Wait at a named barrier for all its threads; an integer is a barrier of this warpgroup's 128 threads alone.
    PTX: ``bar.sync``.
    """
    require_scope("warpgroup.sync", "warpgroup")
    sync_at(at, 4)


def arrive(at: Semaphore | Barrier, count: int = 1) -> None:
    """Arrive at a semaphore ``count`` times, by one thread for the whole warpgroup; or at a named barrier, by all its
    threads, without waiting there.

    The one thread speaks for the others: what they did before must be known to it (a ``sync``), except for products,
    which ``mma_async_wait`` finishes for the warpgroup as a whole.

    PTX: ``elect.sync``, ``mbarrier.arrive``; at a named barrier ``bar.arrive``.
    """
    require_scope("warpgroup.arrive", "warpgroup")
    if isinstance(at, Barrier):
        arrive_at(at)
        return
    with elect():
        arrive_one(at, count)


def increase_registers(count: int) -> None:
    """Take registers from the CTA's pool until each thread has ``count``; waits until there are enough. PTX:
    ``setmaxnreg.inc``.
    """
    _set_registers("inc", count)


def decrease_registers(count: int) -> None:
    """Give registers back to the CTA's pool, keeping ``count`` for each thread. PTX: ``setmaxnreg.dec``."""
    _set_registers("dec", count)


def producer_registers() -> None:
    """Keep 24 registers a thread, as a warpgroup needs that only starts copies. PTX: ``setmaxnreg.dec``."""
    decrease_registers(24)


def consumer_registers(consumers: int) -> None:
    """Take what ``consumers`` consumer warpgroups can have beside one producer. PTX: ``setmaxnreg.inc``."""
    counts = {1: 256, 2: 240, 3: 160, 4: 112}
    if consumers not in counts:
        raise usage(f"consumer warpgroups must be from 1 to 4, not {consumers}")
    increase_registers(counts[consumers])


def _set_registers(direction: str, count: int) -> None:
    scope = require_scope(f"warpgroup.{direction}rease_registers", "warpgroup")
    if not isinstance(count, int) or not 24 <= count <= 256 or count % 8:
        raise usage(f"registers per thread must be a multiple of 8 from 24 to 256, not {count}", 'PTX ISA 9.1, "setmaxnreg"')
    builder = current()
    for warpgroup in scope.warpgroups:
        builder.warpgroup_registers[warpgroup] = count
    builder.emit(f"setmaxnreg.{direction}.sync.aligned.u32 {count}")
