"""Who executes what: loops, branches, roles of warpgroups, single warps and single threads.

A Python ``for`` over :func:`range_` (``tk.range``) becomes one loop of the kernel, whose body Python traces once; a
``for`` over Python's own ``range`` unrolls. ``with`` blocks guard their body: :func:`when` by a condition,
:func:`warpgroups`, :func:`warps` and :func:`elect` by who executes. Each also narrows the *scope*, which operations
check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .builder import Loop, Scope, current, here, require_scope, usage
from .scalars import Int, Pred, Scalar, Var, is_divergent, is_nonnegative, text

_FULL_WARP = "0xffffffff"


def range_(*bounds: Scalar) -> Iterator[Int]:
    """Loop at run time: ``for i in tk.range(stop)``, ``(start, stop)`` or ``(start, stop, step)`` with a positive step.

    The bounds are read once. Values made in the body are new in each iteration; carry state in ``tk.var`` or
    ``tk.ring``.

    PTX: ``setp``, ``bra``, ``add``.
    """
    if not 1 <= len(bounds) <= 3:
        raise usage(f"tk.range must be given one to three bounds, not {len(bounds)}")
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if isinstance(step, int) and step <= 0:
        raise usage(f"tk.range step must be positive, not {step}")
    builder = current()
    for bound_ in (start, stop, step):
        _check_uniform("tk.range bounds", bound_)
    index = Int(builder.register(), is_nonnegative(start))
    bound = _copy(stop) if isinstance(stop, Var) else text(stop)
    builder.emit(f"mov.b32 {index.register}, {text(start)}")
    loop, end = builder.new_label("LOOP"), builder.new_label("END_LOOP")
    if not (isinstance(start, int) and isinstance(stop, int) and start < stop):
        builder.emit(f"setp.ge.s32 {(none := builder.register('p'))}, {index.register}, {bound}")
        builder.emit(f"@{none} bra {end}")
    again_label = builder.new_label("NEXT")
    builder.place(loop)
    with _loop("tk.range loop", end, again_label):
        yield index
        if builder.loops[-1].continues:
            builder.place(again_label)
        builder.emit(f"add.s32 {index.register}, {index.register}, {text(step)}")
        builder.emit(f"setp.lt.s32 {(again := builder.register('p'))}, {index.register}, {bound}")
        builder.emit(f"@{again} bra {loop}")
    builder.place(end)


def while_(condition: Callable[[], Pred]) -> Iterator[None]:
    """Loop at run time as long as a condition holds: ``for _ in tk.while_(lambda: n > 1)``. The function is traced
    once, at the top of the loop. PTX: ``setp``, ``bra``.
    """
    builder = current()
    loop, end = builder.new_label("LOOP"), builder.new_label("END_LOOP")
    builder.place(loop)
    with _loop("tk.while_ loop", end, loop):
        holds = condition()
        if not isinstance(holds, Pred):
            raise usage(f"tk.while_ must be given a function that returns a condition, not {type(holds).__name__}")
        _check_uniform("condition of tk.while_", holds)
        builder.emit(f"@!{holds.register} bra {end}")
        yield
        builder.emit(f"bra {loop}")
    builder.place(end)


def break_when(condition: Pred) -> None:
    """Leave the innermost loop where the condition holds. PTX: ``bra``."""
    _leave("tk.break_when", condition, lambda loop: loop.end)


def continue_when(condition: Pred) -> None:
    """Go on with the next iteration of the innermost loop where the condition holds. PTX: ``bra``."""
    _leave("tk.continue_when", condition, lambda loop: loop.next)
    current().loops[-1].continues = True


def _leave(operation: str, condition: Pred, label: Callable[[Loop], str]) -> None:
    builder = current()
    if not isinstance(condition, Pred):
        raise usage(f"{operation} must be given a condition of the kernel, not {type(condition).__name__}")
    if not builder.loops or builder.loops[-1].scope is not builder.scope:
        raise usage(f"{operation} must be in a loop, and executed by all that execute the loop, not by {builder.scope}")
    _check_uniform(f"condition of {operation}", condition)
    builder.emit(f"@{condition.register} bra {label(builder.loops[-1])}")


def _check_uniform(what: str, value: Scalar | Pred) -> None:
    if is_divergent(value) and current().scope.level not in ("thread", "lanes"):
        raise usage(f"{what} must be equal in all lanes of a warp, not differ between them")


@contextmanager
def _loop(kind: str, end: str, next_: str) -> Iterator[None]:
    builder = current()
    with builder.block(kind):
        builder.loops.append(Loop(builder.scope, end, next_))
        yield
        builder.loops.pop()


def _copy(value: Int) -> str:
    register = current().register()
    current().emit(f"mov.b32 {register}, {value.register}")
    return register


@contextmanager
def when(condition: Pred) -> Iterator[None]:
    """Execute the body where the condition holds. Conditions that differ between lanes leave no room for collectives.
    PTX: ``bra``.
    """
    if not isinstance(condition, Pred):
        raise usage(f"tk.when must be given a condition of the kernel, not {type(condition).__name__}")
    with _branch("tk.when block", condition, "!"):
        yield
    _remember(condition)


@contextmanager
def otherwise(condition: Pred | None = None) -> Iterator[None]:
    """Execute the body where the conditions of the ``when`` (and ``otherwise``) just before do not hold; with
    ``condition``, where that one does. PTX: ``bra``.
    """
    builder = current()
    end, depth, taken = builder.branch or (0, -1, None)
    # Between the two there may be what computes ``condition``, on the line of this call.
    if taken is None or depth != len(builder.blocks) or any(line.location != here() for line in builder.lines[end:]):
        raise usage("tk.otherwise must follow a tk.when block at once, not something else")
    if condition is None:
        with _branch("tk.otherwise block", taken, ""):
            yield
        return
    with _branch("tk.otherwise block", ~taken & condition, "!"):
        yield
    _remember(taken | condition)


def _remember(taken: Pred) -> None:
    builder = current()
    builder.branch = (len(builder.lines), len(builder.blocks), taken)


@contextmanager
def _branch(kind: str, condition: Pred, negation: str) -> Iterator[None]:
    scope = current().scope
    inner = Scope("lanes", scope.warps) if condition.divergent and scope.level != "thread" else None
    with _guarded(kind, f"@{negation}{condition.register}", stem="END_WHEN", scope=inner):
        yield


@contextmanager
def warpgroups(*ranks: int, name: str | None = None) -> Iterator[Int | int]:
    """Execute the body in the given warpgroups of the CTA, as the role ``name``; gives the index among them (0, 1,
    ...). PTX: ``setp``, ``bra``.
    """
    scope = require_scope("tk.warpgroups", "cta")
    builder = current()
    legal = len(scope.warps) // 4
    if len(scope.warps) % 4:
        raise usage(f"warps of a CTA must be a multiple of 4 for tk.warpgroups, not {len(scope.warps)}")
    if not all(isinstance(rank, int) for rank in ranks):
        raise usage(f"warpgroups must be given as numbers of them, not {', '.join(map(repr, ranks))}")
    if not ranks or list(ranks) != list(range(ranks[0], ranks[0] + len(ranks))) or not 0 <= ranks[0] <= ranks[-1] < legal:
        raise usage(f"warpgroups must be consecutive ones of the {legal} in the CTA, not {', '.join(map(str, ranks)) or 'none'}")
    builder.label_of_role(name or (f"warpgroup {ranks[0]}" if len(ranks) == 1 else "warpgroup"), ranks)
    inner = Scope("warpgroup", tuple(w for r in ranks for w in range(4 * r, 4 * r + 4)))
    with _guarded("tk.warpgroups block", *_outside(warpgroup_rank, ranks, legal), stem="END_ROLE", scope=inner):
        if len(ranks) == 1:
            yield 0
        elif ranks[0] == 0:
            yield Int(warpgroup_rank(), nonnegative=True)
        else:
            yield Int(warpgroup_rank(), nonnegative=True) - ranks[0]


@contextmanager
def warps(*ranks: int) -> Iterator[None]:
    """Execute the body in one warp: of each warpgroup in a warpgroup scope, of the CTA outside. PTX: ``setp``,
    ``bra``.
    """
    scope = require_scope("tk.warps", "cta", "warpgroup")
    of_group = scope.level == "warpgroup"
    legal = 4 if of_group else len(scope.warps)
    if len(ranks) != 1 or not 0 <= ranks[0] < legal:
        raise usage(f"tk.warps must be given one rank from 0 to {legal - 1}, not {', '.join(map(str, ranks)) or 'none'}")
    rank = ranks[0]
    inner = tuple(4 * g + rank for g in scope.warpgroups) if of_group else (rank,)
    guards = _outside(warp_rank_in_group if of_group else warp_rank, (rank,), legal)
    with _guarded("tk.warps block", *guards, stem="END_WARP", scope=Scope("warp", inner)):
        yield


@contextmanager
def elect(*, each_warp: bool = False) -> Iterator[None]:
    """Execute the body in one thread of the scope, the elected lane of its first warp; or in one lane of each warp.

    The same thread is elected each time, as waits for bulk groups need. Spec: PTX ISA 9.1, "elect.sync".

    PTX: ``elect.sync``, ``bra``.
    """
    scope = require_scope("tk.elect", "cta", "warpgroup", "warp")
    if scope.level != "warp" and not each_warp:
        with warps(0), elect():
            yield
        return
    builder = current()
    leader = builder.register("p")
    builder.emit(f"elect.sync _|{leader}, {_FULL_WARP}")
    with _guarded("tk.elect block", f"@!{leader}", stem="END_ELECT", scope=Scope("thread", scope.warps)):
        yield


@contextmanager
def _guarded(kind: str, *jumps: str, stem: str = "", scope: Scope | None = None) -> Iterator[None]:
    """Trace a body that the threads for which one of the guards ``jumps`` ("@%p0") holds jump over."""
    builder = current()
    end = builder.new_label(stem)
    for guard in jumps:
        builder.emit(f"{guard} bra {end}")
    with builder.block(kind, scope):
        yield
    builder.place(end)


def _outside(rank: Callable[[], str], ranks: tuple[int, ...], legal: int) -> list[str]:
    """Emit the comparisons that tell whether ``rank`` is none of the consecutive ``ranks``; return the guards."""
    if len(ranks) == legal:
        return []
    tests = [("ne", ranks[0])] if len(ranks) == 1 else []
    if len(ranks) > 1:
        tests += [("lt", ranks[0])] if ranks[0] > 0 else []
        tests += [("gt", ranks[-1])] if ranks[-1] < legal - 1 else []
    guards = []
    for relation, value in tests:
        predicate = current().register("p")
        current().emit(f"setp.{relation}.s32 {predicate}, {rank()}, {value}")
        guards.append(f"@{predicate}")
    return guards


# --- who am I
# -----------------------------------------------------------------------------------------------------------


def warp_rank() -> str:
    """Return the register with the warp's rank in the CTA, broadcast from lane 0 so that ptxas knows it to be
    uniform.
    """
    return current().once(
        "warp",
        "r",
        "mov.u32 {d}, %tid.x",
        "shr.u32 {d}, {d}, 5",
        f"shfl.sync.idx.b32 {{d}}, {{d}}, 0, 31, {_FULL_WARP}",
    )


def warpgroup_rank() -> str:
    """Return the register with the warpgroup's rank in the CTA."""
    warp = warp_rank()
    return current().once("warpgroup", "r", f"shr.u32 {{d}}, {warp}, 2")


def warp_rank_in_group() -> str:
    """Return the register with the warp's rank in its warpgroup."""
    warp = warp_rank()
    return current().once("warp_in_group", "r", f"and.b32 {{d}}, {warp}, 3")


def warp_rank_in(group_warps: int) -> Int:
    """Return the warp's rank in its group of ``group_warps`` consecutive warps."""
    if group_warps == 4:
        return Int(warp_rank_in_group(), nonnegative=True)
    first = current().scope.warps[0] % group_warps
    rank = Int(warp_rank(), nonnegative=True)
    return (rank - first) % group_warps if first else rank % group_warps


def slot_in(group_warps: int) -> Int:
    """Return which rows of a tile this warp of a group has: the four of each warpgroup lie ``group_warps / 4`` apart,
    so that each finds its part of the rows of a wgmma. Vectors follow their tiles. Spec: ThunderKittens 2.0,
    ``group::load`` of tiles.
    """
    rank = warp_rank_in(group_warps)
    if group_warps % 4 or group_warps == 4:
        return rank
    return (rank >> 2) + (rank & 3) * (group_warps // 4)


def lane() -> str:
    """Return the register with the thread's lane."""
    return current().once("lane", "r", "mov.u32 {d}, %laneid")


def warpid() -> Int:
    """Return the warp's rank in the CTA. PTX: ``shr`` of ``%tid`` and ``shfl.sync``, once."""
    return Int(warp_rank(), nonnegative=True)


def laneid() -> Int:
    """Return the thread's lane, 0 to 31. Conditions on it diverge: what they guard cannot be collective. PTX: ``mov``
    of ``%laneid``, once.
    """
    return Int(lane(), nonnegative=True, divergent=True)


def blockIdx(axis: str = "x") -> Int:  # noqa: N802 (CUDA's word)
    """Return the CTA's coordinate in the grid along "x", "y" or "z". PTX: ``mov`` of ``%ctaid``, once."""
    return Int(special("ctaid", axis), nonnegative=True)


def gridDim(axis: str = "x") -> Int:  # noqa: N802 (CUDA's word)
    """Return the grid's extent along "x", "y" or "z". PTX: ``mov`` of ``%nctaid``, once."""
    return Int(special("nctaid", axis), nonnegative=True)


def special(name: str, axis: str) -> str:
    """Return the register with one coordinate of a special register."""
    if axis not in ("x", "y", "z"):
        raise usage(f"axis must be x, y or z, not {axis}")
    return current().once(f"{name}_{axis}", "r", f"mov.u32 {{d}}, %{name}.{axis}")
