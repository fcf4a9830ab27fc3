"""Branches and loops at run time, groups of any number of warps, phase bits, copies with cp.async."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from tests.tk.running import checked, normal


@tk.kernel(grid=1, warps=1)
def classify(n: int, Y: tk.gl(tk.int32, 1, 4)):
    """Collatz steps to 1, a class by three branches, a nested loop left and continued early."""
    with tk.elect():
        x, steps = tk.var(n), tk.var(0)
        for _ in tk.while_(lambda: x > 1):
            with tk.when(x % 2 == 0):
                x.set(x // 2)
            with tk.otherwise():
                x.set(x * 3 + 1)
            steps += 1
        kind = tk.var(0)
        with tk.when(n < 10):
            kind.set(1)
            with tk.when(n < 5):
                kind.set(4)
        with tk.otherwise(n < 20):
            kind.set(2)
        with tk.otherwise(n < 15):
            kind.set(99)
        with tk.otherwise():
            kind.set(3)
        pairs, outer = tk.var(0), tk.var(0)
        for i in tk.range(n):
            tk.continue_when(i % 3 == 0)
            for j in tk.range(n):
                tk.break_when(i * j > 20)
                pairs += 1
            outer += 1
            tk.break_when(outer == 5)
        for place, value in enumerate((steps, kind, pairs, outer)):
            tk.write(Y, place, value)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 40))
def test_loops_and_branches_do_what_they_do_in_python(n):
    x, steps = n, 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    kind = (4 if n < 5 else 1) if n < 10 else 2 if n < 20 else 3
    pairs = outer = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        for j in range(n):
            if i * j > 20:
                break
            pairs += 1
        outer += 1
        if outer == 5:
            break
    assert list(classify.run(n)[0]) == [steps, kind, pairs, outer]
    assert classify.last_run.hazards == []


def test_lanes_take_both_branches(on):
    @tk.kernel(grid=1, warps=1)
    def lanes(Y: tk.gl(tk.int32, 1, 32)):
        value = tk.var(0)
        with tk.when(tk.laneid() < 10):
            value.set(tk.laneid() * 2)
        with tk.otherwise(tk.laneid() < 20):
            value.set(-1)
        with tk.otherwise():
            value += 7
        tk.warp.sync()
        tk.write(Y, tk.laneid(), value)

    lane = np.arange(32)
    np.testing.assert_array_equal(checked(lanes, on=on)[0], np.where(lane < 10, 2 * lane, np.where(lane < 20, -1, 7)))


@pytest.mark.parametrize("group_warps", [1, 2, 4, 8])
def test_groups_of_warps_share_a_tile(group_warps, on):
    """Groups of n warps move a tile through registers and shared memory, each group its own."""
    groups, rows = 8 // group_warps, 32 * group_warps

    @tk.kernel(grid=1, warps=8)
    def share(X: tk.gl(tk.bf16, 256, 64), Y: tk.gl(tk.fl, 256, 64), W: tk.gl(tk.int32, 3, 256), V: tk.gl(tk.fl, 1, 256)):
        group = tk.group(group_warps)
        shared, values = tk.st(tk.bf16, rows, 64, count=groups), tk.rt(tk.fl, 32, 64)
        largest = tk.col_vec(values)
        mine = group.groupid()
        group.load(shared[mine], X, (mine, 0))
        group.sync(mine + 1)
        group.load(values, shared[mine])
        group.store(Y, values, (mine, 0))
        tk.warp.row_max(largest, values)
        vector = tk.sv(tk.fl, rows, count=groups)
        group.store(vector[mine], largest)
        group.sync(mine + 1)
        group.load(largest, vector[mine])
        group.store(V, largest, (0, mine))
        thread = tk.warpid() * 32 + tk.laneid()
        for place, value in enumerate((group.warpid(), group.laneid(), mine)):
            tk.write(W, (place, thread), value)

    x = normal((256, 64), tk.bf16.natural)
    y, w, v = checked(share, x, on=on)
    np.testing.assert_array_equal(y, x.astype(np.float32))
    thread, count = np.arange(256), 32 * group_warps
    np.testing.assert_array_equal(w, [thread % count // 32, thread % count, thread // count])
    np.testing.assert_array_equal(v[0], x.astype(np.float32).max(1))


def test_a_group_meets_at_a_barrier_of_warps(on):
    @tk.kernel(grid=1, warps=4)
    def meet(Y: tk.gl(tk.fl, 64, 16)):
        shared, values = tk.st(tk.fl, 64, 16), tk.rt(tk.fl, 16, 16)
        done = tk.barrier(3, warps=4)
        everyone = tk.everyone()
        tk.warp.one(values)
        everyone.store(shared, values)
        with tk.warps(0):
            tk.group(1).sync(done)
        with tk.when(tk.warpid() > 0), tk.warps(0):
            tk.warp.sync()
        for w in range(1, 4):
            with tk.warps(w):
                tk.group(1).arrive(done)
        with tk.warps(0), tk.elect():
            tk.tma.store_async(Y, shared, (0, 0))
            tk.tma.store_async_wait()

    np.testing.assert_array_equal(checked(meet, on=on), 1)


@pytest.mark.parametrize("scope", ["warp", "warpgroup", "group"])
@pytest.mark.parametrize("rows, cols, swizzle", [(64, 64, None), (50, 40, None), (64, 64, 0)])
def test_copies_with_cp_async(scope, rows, cols, swizzle, on):
    warps = {"warp": 1, "warpgroup": 4, "group": 2}[scope]

    @tk.kernel(grid=1, warps=warps)
    def copy(X: tk.gl(tk.bf16, rows, cols), Y: tk.gl(tk.bf16, 64, 64)):
        tile, values = tk.st(tk.bf16, 64, 64, swizzle=swizzle), tk.rt(tk.bf16, 64 // warps, 64)
        who = tk.group(2) if scope == "group" else getattr(tk, scope)
        who.load_async(tile, X, (0, 0))
        tk.load_async_wait()
        tk.sync()
        who.load(values, tile)
        who.store(Y, values, (0, 0))

    x = normal((rows, cols), tk.bf16.natural)
    expected = np.zeros((64, 64), tk.bf16.natural)
    expected[:rows, :cols] = x
    np.testing.assert_array_equal(checked(copy, x, on=on), expected)


@pytest.mark.parametrize("stages, steps", [(1, 3), (3, 8), (4, 8)])
def test_phase_bits_keep_a_ring(stages, steps, on):
    """A producer and a consumer warpgroup, each with one word of phase bits; every step's number comes across."""

    @tk.kernel(grid=1, warpgroups=2)
    def ring(Y: tk.gl(tk.int32, 1, steps)):
        slots = tk.sv(tk.fl, 16, count=stages)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, 1)
            tk.fence_mbarrier_init()
        tk.sync()
        for role in range(2):
            with tk.warpgroups(role), tk.elect():
                bits, stage = tk.phasebits(), tk.var(0)
                for i in tk.range(steps):
                    tk.wait((full if role else empty)[stage], tk.get_phasebit(bits, stage, 1 - role))
                    tk.update_phasebit(bits, stage, 1 - role)
                    if role:
                        tk.write(Y, i, tk.to_int(tk.read(slots[stage], 3)))
                    else:
                        tk.write(slots[stage], 3, tk.to_float(i * i))
                    tk.arrive((empty if role else full)[stage])
                    stage.set(tk.ring_advance(tk.ring_retreat(stage, stages), stages, 2))

    np.testing.assert_array_equal(checked(ring, on=on)[0], np.arange(steps) ** 2)


def test_waits_can_ask_and_arrive(on):
    @tk.kernel(grid=1, warps=1)
    def ask(Y: tk.gl(tk.int32, 1, 3)):
        done = tk.semaphore()
        with tk.elect():
            tk.init_semaphore(done, 1)
            before = tk.select(tk.test_wait(done, 0), 1, 0)
            tk.arrive_and_wait(done, 0)
            for place, value in enumerate((before, tk.select(tk.test_wait(done, 0), 1, 0), tk.select(tk.try_wait(done, 0), 1, 0))):
                tk.write(Y, place, value)

    assert list(checked(ask, on=on)[0]) == [0, 1, 1]


def test_dependent_launches_are_marked(on):
    @tk.kernel(grid=1, warps=1)
    def dependent(X: tk.gl(tk.fl, 16, 16), Y: tk.gl(tk.fl, 16, 16)):
        tile = tk.rt(tk.fl, 16, 16)
        tk.pdl.wait()
        tk.warp.load(tile, X, (0, 0))
        tk.pdl.arrive()
        tk.warp.store(Y, tile, (0, 0))

    x = normal((16, 16))
    np.testing.assert_array_equal(checked(dependent, x, on=on), x)


def loop(body):
    def wrapped():
        for _ in tk.range(3):
            body()

    return wrapped


def inside(context, body):
    def wrapped():
        with context():
            body()

    return wrapped


def branch_then(body):
    def wrapped():
        with tk.when(tk.warpid() == 0):
            pass
        body()

    return wrapped


def sync_and_otherwise():
    tk.sync()
    with tk.otherwise():
        pass


REFUSED = [
    (inside(lambda: tk.otherwise(), lambda: None), "tk.otherwise must follow a tk.when block at once, not something else"),
    (branch_then(sync_and_otherwise),
     "tk.otherwise must follow a tk.when block at once, not something else"),
    (lambda: tk.break_when(tk.warpid() == 0),
     "tk.break_when must be in a loop, and executed by all that execute the loop, not by all warps of the CTA"),
    (loop(inside(tk.elect, lambda: tk.continue_when(tk.warpid() == 0))),
     "tk.continue_when must be in a loop, and executed by all that execute the loop, not by one thread"),
    (loop(lambda: tk.break_when(tk.laneid() == 0)),
     "condition of tk.break_when must be equal in all lanes of a warp, not differ between them"),
    (lambda: list(tk.while_(lambda: True)), "tk.while_ must be given a function that returns a condition, not bool"),
    (lambda: tk.group(9), "warps of a group must be from 1 to the CTA's 8, not 9"),
    (inside(lambda: tk.warpgroups(1), lambda: tk.group(8).warpid()),
     "group<8>.warpid must be executed by a multiple of 8 consecutive warps, not warpgroup 1"),
    (inside(tk.elect, lambda: tk.group(1).sync(1)),
     "group<1>.sync must be executed by a multiple of 1 consecutive warps, not one thread"),
    (lambda: tk.group(2).arrive(tk.semaphore()), "group<2>.arrive at a semaphore must be in a scope of one group, not of 8 warps"),
    (lambda: tk.barrier(1), "named barrier must be given either warpgroups or warps"),
    (lambda: tk.barrier(1, warps=9), "warps of a named barrier must be from 1 to the CTA's 8, not 9"),
    (lambda: tk.sync(16), "barrier of tk.sync must be from 0 to 15, not 16"),
    (lambda: tk.get_phasebit(tk.phasebits(), 0, 2), "half of the phase bits must be 0 (arrived) or 1 (finished), not 2"),
    (lambda: tk.load_async_wait(-1), "pending groups of load_async_wait must be 0 or more, not -1"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warps=8)(lambda: body() and None)
    assert error.value.message == message
