"""The templates of whole kernels: load-compute-finish and load-compute-store-finish."""

import dataclasses
import re

import numpy as np
import pytest

from h100sim import tk
from h100sim.errors import DeadlockError, KernelError, UsageError
from tests.tk.running import checked, normal

BF16 = tk.bf16.natural


def gemm(m, n, k, ctas, stages=2, consumers=2, bn=128):
    """Return C = A B by the template, 64 rows for each consumer; with 4 stages of 128x256 the finish block overlaps."""
    cols, steps, tasks = n // bn, k // 64, m // (64 * consumers) * (n // bn)

    @tk.kernel(grid=ctas, warpgroups=consumers + 1)
    def matmul(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        def input_block():
            return {"a": tk.st(tk.bf16, 64, 64, count=consumers), "b": tk.st(tk.bf16, 64, bn)}

        def finish_block():
            return {"c": tk.st(tk.bf16, 64, bn, count=consumers)}

        def common_setup(args):
            task = args.task_iter * ctas + tk.blockIdx()
            args.num_iters = tk.select(task < tasks, steps, -1)
            args.row, args.col = task // cols, task % cols

        def load(args):
            tk.tma.expect(args.inputs_arrived, args.input.a, args.input.b)
            for i in range(consumers):
                tk.tma.load_async(args.input.a[i], A, (args.row * consumers + i, args.iter), args.inputs_arrived)
            tk.tma.load_async(args.input.b, B, (args.iter, args.col), args.inputs_arrived)

        def zero_accumulator(args):
            acc = tk.rt(tk.fl, 16, bn)
            tk.warp.zero(acc)
            return acc

        def compute(args):
            tk.warpgroup.mma_AB(args.state, args.input.a[args.consumer], args.input.b)
            tk.warpgroup.mma_async_wait()
            tk.warpgroup.arrive(args.inputs_finished)

        def finish(args):
            c = args.finish.c[args.consumer]
            tk.warpgroup.store(c, args.state)
            tk.warpgroup.sync(args.consumer + 1)
            with tk.elect():
                tk.tma.store_async(C, c, (args.row * consumers + args.consumer, args.col))
                tk.tma.store_async_read_wait()
                tk.arrive(args.finish_finished)
                tk.tma.store_async_wait()

        tk.lcf(
            input_block=input_block, finish_block=finish_block, common_setup=common_setup, load=load, compute=compute,
            finish=finish, consumer_setup=zero_accumulator, stages=stages, consumers=consumers,
        )  # fmt: skip

    return matmul


@pytest.mark.parametrize(
    "m, n, k, config",
    [
        (256, 256, 192, {"ctas": 2}), (256, 384, 64, {"ctas": 1}), (64, 256, 128, {"ctas": 1, "consumers": 1}),
        (128, 512, 320, {"ctas": 1, "stages": 4, "bn": 256}),
    ],
)  # fmt: skip
def test_load_compute_finish_multiplies(m, n, k, config, on):
    a, b = normal((m, k), BF16, 1), normal((k, n), BF16, 2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    result = checked(gemm(m, n, k, **config), a, b, on=on).astype(np.float64)
    np.testing.assert_allclose(result, exact, atol=0.02, rtol=2**-8)


def test_the_finish_block_lies_over_the_last_input_blocks():
    kernel = gemm(128, 512, 320, ctas=1, stages=4, bn=256)
    tiles = {t["name"]: t for t in kernel.debug.tiles}
    assert [name for name in tiles if name[0] == "b"] == ["b_3", "b_2", "b_1", "b_0"]
    assert tiles["b_1"]["offset"] - tiles["b_0"]["offset"] == 2 * 8192 + 64 * 256 * 2
    assert tiles["a_3"]["offset"] < tiles["c"]["offset"] < tiles["b_3"]["offset"] + 64 * 256 * 2
    assert tiles["a_3"]["count"] == (2,)
    assert kernel.shared_bytes <= tk.MAX_SHARED_BYTES
    assert kernel.debug.roles == (("consumer 0", 0, 3), ("consumer 1", 4, 7), ("producer", 8, 11))


@pytest.mark.parametrize("rows, stages", [(256, (1, 1)), (640, (2, 3))])
def test_load_compute_store_finish_streams(rows, stages, on):
    """Y = X + bias; the consumers also count what they saw."""
    chunks = rows // 128

    @tk.kernel(grid=2, warpgroups=3)
    def stream(X: tk.gl(tk.fl, rows, 32), bias: float, Y: tk.gl(tk.fl, rows, 32), N: tk.gl(tk.int32, 2, 2)):
        def common_setup(args):
            mine = (chunks - tk.blockIdx() + 1) // 2
            args.num_iters = tk.select(args.task_iter == 0, mine, -1)

        def load(args):
            tk.tma.expect(args.inputs_arrived, args.input.x)
            for i in range(2):
                row = (args.iter * 2 + tk.blockIdx()) * 2 + i
                tk.tma.load_async(args.input.x[i], X, (row, 0), args.inputs_arrived)

        def compute(args):
            values = tk.rt(tk.fl, 16, 32)
            tk.warpgroup.load(values, args.input.x[args.consumer])
            tk.warp.add(values, values, bias)
            tk.warpgroup.store(args.output.y[args.consumer], values)
            tk.warpgroup.sync(args.consumer + 1)
            tk.warpgroup.arrive(args.inputs_finished)
            tk.warpgroup.arrive(args.outputs_arrived)
            args.state += 1

        def store(args):
            for i in range(2):
                tk.tma.store_async(Y, args.output.y[i], ((args.iter * 2 + tk.blockIdx()) * 2 + i, 0))
            tk.tma.store_async_read_wait()
            tk.arrive(args.outputs_finished)

        def finish(args):
            with tk.elect():
                tk.write(N, (tk.blockIdx(), args.consumer), args.state)
                tk.arrive(args.finish_finished)

        tk.lcsf(
            input_block=lambda: {"x": tk.st(tk.fl, 64, 32, count=2)}, output_block=lambda: {"y": tk.st(tk.fl, 64, 32, count=2)},
            common_setup=common_setup, load=load, compute=compute, store=store, finish=finish,
            consumer_setup=lambda args: tk.var(0), input_stages=stages[0], output_stages=stages[1], consumers=2,
        )  # fmt: skip

    x = normal((rows, 32))
    y, n = checked(stream, x, 0.5, on=on)
    np.testing.assert_array_equal(y, x + np.float32(0.5))
    np.testing.assert_array_equal(n, [[(chunks + 1) // 2] * 2, [chunks // 2] * 2])


OVERLAPPING = (128, 512, 320), {"ctas": 1, "stages": 4, "bn": 256}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_schedules_give_the_same_without_hazards(seed):
    (m, n, k), config = OVERLAPPING
    kernel = gemm(m, n, k, **config)
    a, b = normal((m, k), BF16, 1), normal((k, n), BF16, 2)
    expected = kernel.run(a, b)
    np.testing.assert_array_equal(kernel.run(a, b, schedule=seed), expected)
    assert kernel.last_run.hazards == []


#: (pattern of instructions that are left out, which of the places, of which hazards or exceptions one must be reported)
OMISSIONS = [
    (r"bar\.sync 0;", 0, {"race"}),
    (r"bar\.sync 14, 256;", 0, {"race", "proxy-race"}),
    (r"bar\.sync %r\d+, 128;", 0, {"race", "proxy-race"}),
    (r"wgmma\.wait_group.*", 0, {"race", "proxy-race", "register-race"}),
    (r"mbarrier\.arrive\.expect_tx.*", 0, {"DeadlockError", "KernelError", "tx-underflow"}),
    (r"mbarrier\.arrive\.release.*", 0, {"DeadlockError"}),
    (r"mbarrier\.arrive\.release.*", 1, {"DeadlockError"}),
    (r"cp\.async\.bulk\.wait_group\.read 0;", 0, {"race", "proxy-race"}),
]


@pytest.mark.parametrize("pattern, place, outcome", OMISSIONS, ids=[f"{p}-{n}" for p, n, _ in OMISSIONS])
def test_every_omission_in_a_template_is_noticed(pattern, place, outcome):
    (m, n, k), config = OVERLAPPING
    kernel = gemm(m, n, k, **config)
    found = list(re.finditer(rf"(?m)^ *{pattern}$", kernel.ptx))
    assert len(found) > place, "the pattern must name an instruction of the kernel"
    begin, end = found[place].span()
    broken = dataclasses.replace(kernel, ptx=kernel.ptx[:begin] + kernel.ptx[end:])
    try:
        broken.run(normal((m, k), BF16, 1), normal((k, n), BF16, 2), max_cycles=200_000)
        noticed = {hazard.kind for hazard in broken.last_run.hazards}
    except DeadlockError:
        noticed = {"DeadlockError"}
    except KernelError:
        noticed = {"KernelError"}
    assert outcome & noticed, noticed


def nothing(args):
    args.num_iters = 1


def template(**changes):
    settings = {
        "input_block": lambda: {"x": tk.st(tk.bf16, 64, 64)}, "common_setup": nothing, "load": nothing, "compute": nothing,
        "finish": nothing, "stages": 2, "consumers": 1,
    }  # fmt: skip
    return lambda: tk.lcf(**{**settings, **changes})


REFUSED = [
    (template(consumers=2), "tk.lcf kernel must have warpgroups=2 + 1 (consumers from 1 to 4, and a producer), not 8 warps"),
    (template(stages=17), "stages of input must be from 1 to 16, not 17"),
    (template(stages=16, input_block=lambda: {"x": tk.st(tk.bf16, 128, 128)}),
     "shared memory of a CTA must be at most 232,448 bytes, not 526,336 with 16 of input_block"),
    (template(input_block=lambda: tk.st(tk.bf16, 64, 64)),
     "input_block must return a dict of the shared tiles and vectors that it makes, by name"),
    (template(common_setup=lambda args: None), "common_setup must set args.num_iters, not leave it out"),
    (template(finish_block=lambda: {"c": tk.st(tk.fl, 256, 224)}),
     "finish block must leave room for an input block and all output blocks, not take 229,376 of 230,400 bytes"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_misuse_is_named(body, message):
    with pytest.raises(UsageError) as error:
        tk.kernel(grid=1, warpgroups=2)(body)
    assert error.value.message == message
