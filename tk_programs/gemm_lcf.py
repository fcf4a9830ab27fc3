"""C = A B by the load-compute-finish template, as ThunderKittens' own GEMM for Hopper: only the work is written here.

``tk.lcf`` brings the ring, its semaphores, the roles, the registers and the loop over tasks. Tiles of C are 64 rows a consumer
and 256 columns; four stages of input take so much shared memory that the finish block lies over the last of them, and the
template lets the producer fill those only when C has left.
"""

# mypy: disable-error-code="valid-type"

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs.gemm_ladder import inputs, reference, require_tiles

__all__ = ["CONFIG", "TEACHES", "build", "inputs", "reference"]

TEACHES = "a GEMM by the load-compute-finish template: what is left to write when the pipeline is given"
CONFIG = {"m": 256, "n": 512, "k": 320, "stages": 4, "ctas": 2}

#: The tile of A of one consumer, and of B: ThunderKittens' 128x256x64 for two consumers.
BM, BN, BK = 64, 256, 64
#: Rows of tiles that neighbouring tasks share, so that L2 holds B for them.
GROUP = 8


def build(m: int = 256, n: int = 512, k: int = 320, stages: int = 4, consumers: int = 2, ctas: int = 132) -> tk.Kernel:
    """Return the kernel for A (m x k), B (k x n) and C (m x n) in bf16, with at most ``ctas`` CTAs.

    Raises UsageError for sizes that do not tile.
    """
    require_tiles(m=(m, consumers * BM), n=(n, BN), k=(k, BK), ctas=(ctas, 1))
    if not 1 <= consumers <= 2:
        raise UsageError(f"consumers must be 1 or 2 (256 columns of C take 128 registers of a thread), not {consumers}")
    rows, cols, steps = m // (consumers * BM), n // BN, k // BK
    grid = min(rows * cols, ctas)
    group = max(g for g in range(1, GROUP + 1) if rows % g == 0)

    @tk.kernel(grid=grid, warpgroups=consumers + 1)
    def gemm_lcf(A: tk.gl(tk.bf16, m, k), B: tk.gl(tk.bf16, k, n), C: tk.gl(tk.bf16, m, n)):
        def input_block():
            return {"a": tk.st(tk.bf16, BM, BK, count=consumers), "b": tk.st(tk.bf16, BK, BN)}

        def finish_block():
            return {"c": tk.st(tk.bf16, BM, BN, count=consumers)}

        def common_setup(args):
            task = args.task_iter * grid + tk.blockIdx()
            band, place = task // (group * cols), task % (group * cols)
            args.row, args.col = band * group + place % group, place // group
            args.num_iters = tk.select(task < rows * cols, steps, -1)

        def load(args):
            tk.tma.expect(args.inputs_arrived, args.input.a, args.input.b)
            for i in range(consumers):
                tk.tma.load_async(args.input.a[i], A, (args.row * consumers + i, args.iter), args.inputs_arrived)
            tk.tma.load_async(args.input.b, B, (args.iter, args.col), args.inputs_arrived)

        def accumulator(args):
            acc = tk.rt(tk.fl, BM // 4, BN)
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

        tk.lcf(
            input_block=input_block,
            finish_block=finish_block,
            common_setup=common_setup,
            consumer_setup=accumulator,
            load=load,
            compute=compute,
            finish=finish,
            stages=stages,
            consumers=consumers,
            producer_registers=40,
            consumer_registers=232 if consumers == 2 else 240,
        )

    return gemm_lcf
