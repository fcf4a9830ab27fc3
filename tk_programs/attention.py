"""O = softmax(Q K^T / sqrt(d)) V, forward, as ThunderKittens' attention: one producer, consumers with 64 queries each.

Every consumer keeps its queries in shared memory and walks over blocks of keys and values: scores stay in registers,
where an online softmax turns them into the bf16 operand of the second product. Keys and values have semaphores of
their own, so that the first product need not wait for values.
"""

# mypy: disable-error-code="valid-type"

import math

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "attention: two chained products, A from registers, online softmax with row reductions, causal masks"
CONFIG = {"batch": 1, "heads": 1, "n": 256, "d": 64, "consumers": 2}

#: Registers per thread of the producer and of each of 1, 2 or 3 consumers.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = {1: 40, 2: 24, 3: 32}, {1: 248, 2: 240, 3: 160}


def build(
    batch: int = 1,
    heads: int = 1,
    n: int = 256,
    d: int = 64,
    kv: int = 128,
    stages: int = 2,
    consumers: int = 2,
    causal: bool = False,
) -> tk.Kernel:
    """Return the kernel for Q, K, V and O of batch x heads x n x d in bf16.

    ``kv``: keys in a block; ``consumers``: warpgroups of 64 queries. Raises UsageError for sizes that do not tile.
    """
    for name, size, unit in (("n", n, 64 * consumers), ("n", n, kv), ("kv", kv, 64)):
        if size < unit or size % unit:
            raise UsageError(f"{name} must be a multiple of {unit}, not {size}")
    if d not in (64, 128):
        raise UsageError(f"d must be 64 or 128, not {d}")
    queries = 64 * consumers
    # Scores are kept times 1 / sqrt(d) and in units of log2, so that exp2 serves for exp.
    scale = math.log2(math.e) / math.sqrt(d)
    shape = tk.gl(tk.bf16, batch, heads, n, d)

    @tk.kernel(grid=(n // queries, heads, batch), warpgroups=1 + consumers)
    def attention(Q: shape, K: shape, V: shape, O: shape):  # noqa: E741
        q = tk.st(tk.bf16, 64, d, count=consumers)
        k, v = tk.st(tk.bf16, kv, d, count=stages), tk.st(tk.bf16, kv, d, count=stages)
        q_full = tk.semaphores(consumers)
        k_full, k_empty = tk.semaphores(stages), tk.semaphores(stages)
        v_full, v_empty = tk.semaphores(stages), tk.semaphores(stages)

        with tk.elect():
            for semaphores in (q_full, k_full, v_full):
                tk.init_semaphore(semaphores, 1)
            for semaphores in (k_empty, v_empty):
                tk.init_semaphore(semaphores, consumers)
            tk.fence_mbarrier_init()
        tk.sync()

        block, head, sequence = tk.blockIdx("x"), tk.blockIdx("y"), tk.blockIdx("z")
        blocks = ((block + 1) * queries + kv - 1) // kv if causal else n // kv

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(PRODUCER_REGISTERS[consumers])
            with tk.elect():
                for i in range(consumers):
                    tk.tma.expect_bytes(q_full[i], q[0].size_bytes)
                    tk.tma.load_async(q[i], Q, (sequence, head, block * consumers + i, 0), q_full[i])
                ring = tk.ring(stages)
                for j in tk.range(blocks):
                    tk.wait(k_empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(k_full[ring.stage], k[0].size_bytes)
                    tk.tma.load_async(k[ring.stage], K, (sequence, head, j, 0), k_full[ring.stage])
                    tk.wait(v_empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(v_full[ring.stage], v[0].size_bytes)
                    tk.tma.load_async(v[ring.stage], V, (sequence, head, j, 0), v_full[ring.stage])
                    ring.advance()

        with tk.warpgroups(*range(1, 1 + consumers), name="consumer") as consumer:
            tk.warpgroup.increase_registers(CONSUMER_REGISTERS[consumers])
            scores, weights, out = tk.rt(tk.fl, 16, kv), tk.rt(tk.bf16, 16, kv), tk.rt(tk.fl, 16, d)
            highest, lowered, before, norm = (
                tk.col_vec(scores, name=x) for x in ("highest", "lowered", "before", "norm")
            )
            tk.warp.neg_infty(highest)
            tk.warp.zero(norm)
            tk.warp.zero(out)
            first_row = block * queries + consumer * 64 + tk.warpgroup.warpid() * 16
            ring = tk.ring(stages)
            tk.wait(q_full[consumer], 0)
            for j in tk.range(blocks):
                tk.wait(k_full[ring.stage], ring.phase)
                tk.warpgroup.mm_ABt(scores, q[consumer], k[ring.stage])
                tk.warp.mul(before, highest, scale)
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.arrive(k_empty[ring.stage])
                if causal:
                    with tk.when((j + 1) * kv > first_row):
                        tk.warp.make_causal(scores, scores, first_row, j * kv, -math.inf)
                tk.warp.row_max(highest, scores, highest)
                tk.warp.mul(lowered, highest, -scale)
                tk.warp.mul(scores, scores, scale)
                tk.warp.add_row(scores, scores, lowered)
                tk.warp.exp2(scores, scores)
                tk.warp.add(before, before, lowered)
                tk.warp.exp2(before, before)
                tk.warp.mul(norm, norm, before)
                tk.warp.row_sum(norm, scores, norm)
                tk.warp.copy(weights, scores)
                tk.warp.mul_row(out, out, before)
                tk.wait(v_full[ring.stage], ring.phase)
                tk.warpgroup.mma_AB(out, weights, v[ring.stage])
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.arrive(v_empty[ring.stage])
                ring.advance()
            tk.warp.div_row(out, out, norm)
            tk.warpgroup.store(q[consumer], out)
            tk.warpgroup.sync(consumer + 1)
            with tk.elect():
                tk.tma.store_async(O, q[consumer], (sequence, head, block * consumers + consumer, 0))
                tk.tma.store_async_wait()

    return attention


def inputs(
    seed: int = 0, batch: int = 1, heads: int = 1, n: int = 256, d: int = 64, **_config
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random normal Q, K and V in bf16."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((batch, heads, n, d), np.float32).astype(ml_dtypes.bfloat16) for _ in range(3))
    return q, k, v


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return attention in float64 and the error to allow: weights and outputs are rounded to bf16."""
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    scores = q64 @ np.swapaxes(k64, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    exact = weights @ v64
    return exact, 2.0**-8 * (np.abs(exact) + weights @ np.abs(v64))
