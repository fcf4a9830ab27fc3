"""Causal attention in linear time: softmax feature maps instead of a softmax of scores, and a running state.

As in Hedgehog and LoLCATs, a query or key x becomes the features [softmax(x), softmax(-x)], and the weight of a key is the
product of features. Weights then need not be computed against every key: what all keys of earlier chunks say to a query is in
the state S = sum of feature(k) v^T, and their total weight in z = sum of feature(k). A chunk of 64 queries meets its own 64
keys by a masked product, as in attention, and everything before by one product with S.

S lives in the accumulators of wgmma, which is where products add to it; as an operand it must be in shared memory, in bf16,
so a copy is written after each chunk. z is kept the same way, as 16 equal columns.
"""

# mypy: disable-error-code="valid-type"

import math

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "linear attention: a state that runs along the sequence, kept in accumulators and copied as an operand"
CONFIG = {"batch": 1, "heads": 2, "n": 256}

D, CHUNK, ONES = 64, 64, 16


def build(batch: int = 1, heads: int = 2, n: int = 256, stages: int = 2) -> tk.Kernel:
    """Return the kernel for Q, K, V and O of batch x heads x n x 64 in bf16. Raises UsageError for sizes that do not tile."""
    for name, size in (("batch", batch), ("heads", heads)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    if n < CHUNK or n % CHUNK:
        raise UsageError(f"n must be a multiple of {CHUNK}, not {n}")
    if not 1 <= stages <= 4:
        raise UsageError(f"stages must be from 1 to 4, not {stages}")
    shape = tk.gl(tk.bf16, batch, heads, n, D)
    to_log2 = math.log2(math.e)

    @tk.kernel(grid=(heads, batch), warpgroups=2)
    def linear_attention(Q: shape, K: shape, V: shape, O: shape):  # noqa: E741
        q, k, v = (tk.st(tk.bf16, CHUNK, D, count=stages, name=name) for name in "qkv")
        # Of both kinds of feature: keys, the state, its column sums.
        k_features, state, total = (
            tk.st(tk.bf16, CHUNK, D, count=2),
            tk.st(tk.bf16, D, D, count=2),
            tk.st(tk.bf16, D, ONES, count=2),
        )
        o, ones = tk.st(tk.bf16, CHUNK, D), tk.st(tk.bf16, CHUNK, ONES)
        full, empty = tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, 1)
            tk.fence_mbarrier_init()
        tk.sync()
        head, sequence = tk.blockIdx("x"), tk.blockIdx("y")

        with tk.warpgroups(0, name="producer"), tk.elect():
            ring = tk.ring(stages)
            for chunk in tk.range(n // CHUNK):
                tk.wait(empty[ring.stage], ring.phase ^ 1)
                tk.tma.expect_bytes(full[ring.stage], 3 * q[0].size_bytes)
                for tile, tensor in ((q, Q), (k, K), (v, V)):
                    tk.tma.load_async(tile[ring.stage], tensor, (sequence, head, chunk, 0), full[ring.stage])
                ring.advance()

        with tk.warpgroups(1, name="consumer"):
            x, feature = tk.rt(tk.fl, 16, D), tk.rt(tk.fl, 16, D)
            q_features = [tk.rt(tk.bf16, 16, D, name=name) for name in ("q_plus", "q_minus")]
            states = [tk.rt(tk.fl, 16, D, name=name) for name in ("state_plus", "state_minus")]
            totals = [tk.rt(tk.fl, 16, ONES, name=name) for name in ("total_plus", "total_minus")]
            scores, weights, out = tk.rt(tk.fl, 16, CHUNK), tk.rt(tk.bf16, 16, CHUNK), tk.rt(tk.fl, 16, D)
            earlier = tk.rt(tk.fl, 16, ONES)
            shift, norm = tk.col_vec(x, name="shift"), tk.col_vec(x, name="norm")

            def softmax_of(sign):
                """Set feature to softmax(sign * x) along rows."""
                tk.warp.mul(feature, x, sign * to_log2)
                tk.warp.row_max(shift, feature)
                tk.warp.sub_row(feature, feature, shift)
                tk.warp.exp2(feature, feature)
                tk.warp.row_sum(shift, feature)
                tk.warp.rcp(shift, shift)
                tk.warp.mul_row(feature, feature, shift)

            def publish():
                """Copy state and totals to shared memory, as operands of the next chunk."""
                for i in range(2):
                    tk.warpgroup.store(state[i], states[i])
                    tk.warpgroup.store(total[i], totals[i])

            for sums in (*states, *totals):
                tk.warp.zero(sums)
            tk.warp.one(earlier)
            tk.warpgroup.store(ones, earlier)
            publish()

            ring = tk.ring(stages)
            for chunk in tk.range(n // CHUNK):
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.load(x, k[ring.stage])
                for i, sign in enumerate((1, -1)):
                    softmax_of(sign)
                    tk.warpgroup.store(k_features[i], feature)
                tk.warpgroup.load(x, q[ring.stage])
                for i, sign in enumerate((1, -1)):
                    softmax_of(sign)
                    tk.warp.copy(q_features[i], feature)
                # Features, state and totals of all four warps are in place.
                tk.warpgroup.sync(1)

                # Weights of the chunk's own keys; values and weights of all earlier ones.
                tk.warpgroup.mm_ABt(scores, q_features[0], k_features[0])
                tk.warpgroup.mma_ABt(scores, q_features[1], k_features[1])
                tk.warpgroup.mm_AB(earlier, q_features[0], total[0])
                tk.warpgroup.mma_AB(earlier, q_features[1], total[1])
                tk.warpgroup.mm_AB(out, q_features[0], state[0])
                tk.warpgroup.mma_AB(out, q_features[1], state[1])
                tk.warpgroup.mma_async_wait()
                tk.warp.tril(scores, scores, tk.warpgroup.warpid() * 16, 0.0)
                tk.warp.row_sum(norm, scores)
                tk.warp.row_max(shift, earlier)
                tk.warp.add(norm, norm, shift)
                tk.warp.copy(weights, scores)

                tk.warpgroup.mma_AB(out, weights, v[ring.stage])
                for i in range(2):
                    tk.warpgroup.mma_AtB(states[i], k_features[i], v[ring.stage])
                    tk.warpgroup.mma_AtB(totals[i], k_features[i], ones)
                tk.warpgroup.mma_async_wait()
                # The slot is free when all warps have loaded q and k, too: they met at the barrier above.
                tk.warpgroup.arrive(empty[ring.stage])

                tk.warp.div_row(out, out, norm)
                with tk.elect():
                    tk.tma.store_async_read_wait()
                tk.warpgroup.sync(1)
                publish()
                tk.warpgroup.store(o, out)
                tk.warpgroup.sync(1)
                with tk.elect():
                    tk.tma.store_async(O, o, (sequence, head, chunk, 0))
                ring.advance()
            with tk.elect():
                tk.tma.store_async_wait()

    return linear_attention


def inputs(seed: int = 0, batch: int = 1, heads: int = 2, n: int = 256, **_config) -> tuple[np.ndarray, ...]:
    """Return random normal Q, K and V in bf16."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((batch, heads, n, D), np.float32).astype(ml_dtypes.bfloat16) for _ in range(3))
    return q, k, v


def features(x: np.ndarray) -> np.ndarray:
    """Return [softmax(x), softmax(-x)] along the last axis, in float64."""
    x64 = x.astype(np.float64)
    both = [np.exp(s * x64 - (s * x64).max(-1, keepdims=True)) for s in (1, -1)]
    return np.concatenate([e / e.sum(-1, keepdims=True) for e in both], -1)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted means in float64 and the error to allow: features, weights, state and output are each rounded to
    bf16, which moves weights and their sum by up to four halves of a unit.
    """
    weights = np.tril(features(q) @ np.swapaxes(features(k), -1, -2))
    weights /= weights.sum(-1, keepdims=True)
    exact = weights @ v.astype(np.float64)
    return exact, 2.0**-8 * (np.abs(exact) + 4 * weights @ np.abs(v.astype(np.float64)))
