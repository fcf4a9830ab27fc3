"""The backward pass of attention: dQ, dK and dV from dO, with the scores computed anew and never stored.

A CTA owns 128 keys, 64 for each of two consumers, whose dK and dV stay in registers while the producer walks over blocks of
64 queries. Everything is kept transposed, keys in rows and queries in columns: then the weights P^T and the gradients dS^T
of the scores are A operands in registers for dV += P^T dO and dK += dS^T Q. Only dQ = dS K needs dS the other way round: it
goes through shared memory, where wgmma reads it transposed.

Every CTA has a part of every dQ. The parts are added in global memory by TMA reductions, in f32.
"""

# mypy: disable-error-code="valid-type"

import math
from typing import Any

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError
from tk_programs import attention

TEACHES = "attention backward: transposed scores, five products, dQ added up in global memory by TMA reductions"
CONFIG = {"batch": 1, "heads": 1, "n": 256, "d": 64}

CONSUMERS, KEYS, QUERIES, PIECE = 2, 64, 64, 64


def build(batch: int = 1, heads: int = 1, n: int = 256, d: int = 64, stages: int = 2, causal: bool = False) -> tk.Kernel:
    """Return the kernel for Q, K, V, dO of batch x heads x n x d in bf16, L and Delta of batch x heads x n in f32 (L as
    ``attention`` writes it, Delta as ``attention_delta``); dQ in f32, which is added to, dK and dV in bf16.

    Raises UsageError for sizes that do not tile.
    """
    for name, size in (("batch", batch), ("heads", heads)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    if n < CONSUMERS * KEYS or n % (CONSUMERS * KEYS):
        raise UsageError(f"n must be a multiple of {CONSUMERS * KEYS}, not {n}")
    if d not in (64, 128):
        raise UsageError(f"d must be 64 or 128, not {d}")
    if not 1 <= stages <= 2:
        raise UsageError(f"stages must be 1 or 2, not {stages}")
    shape, rows = tk.gl(tk.bf16, batch, heads, n, d), tk.gl(tk.fl, batch, heads, n)
    sums = tk.gl(tk.fl, batch, heads, n, d)
    to_log2, root = math.log2(math.e) / math.sqrt(d), 1 / math.sqrt(d)

    @tk.kernel(grid=(n // (CONSUMERS * KEYS), heads, batch), warpgroups=1 + CONSUMERS)
    def attention_backward(Q: shape, K: shape, V: shape, dO: shape, L: rows, Delta: rows, dQ: sums, dK: shape, dV: shape):
        k, v = (tk.st(tk.bf16, KEYS, d, count=CONSUMERS, name=name) for name in "kv")
        q, do = (tk.st(tk.bf16, QUERIES, d, count=stages, name=name) for name in ("q", "do"))
        l, delta = (tk.sv(tk.fl, QUERIES, count=stages, name=name) for name in ("l", "delta"))  # noqa: E741
        ds = tk.st(tk.bf16, KEYS, QUERIES, count=CONSUMERS)
        dq = tk.st(tk.fl, QUERIES, d, count=CONSUMERS)
        kv_full, full, empty = tk.semaphores(CONSUMERS), tk.semaphores(stages), tk.semaphores(stages)
        with tk.elect():
            tk.init_semaphore(kv_full, 1)
            tk.init_semaphore(full, 1)
            tk.init_semaphore(empty, CONSUMERS)
            tk.fence_mbarrier_init()
        tk.sync()

        block, head, sequence = tk.blockIdx("x"), tk.blockIdx("y"), tk.blockIdx("z")
        # Queries before the first key of the block have no weight on any of its keys.
        first = block * (CONSUMERS * KEYS // QUERIES) if causal else 0

        with tk.warpgroups(0, name="producer"):
            tk.warpgroup.decrease_registers(24)
            with tk.elect():
                for c in range(CONSUMERS):
                    tk.tma.expect_bytes(kv_full[c], 2 * k[0].size_bytes)
                    for tile, tensor in ((k, K), (v, V)):
                        tk.tma.load_async(tile[c], tensor, (sequence, head, block * CONSUMERS + c, 0), kv_full[c])
                ring = tk.ring(stages)
                for i in tk.range(first, n // QUERIES):
                    arrived = full[ring.stage]
                    tk.wait(empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(arrived, 2 * q[0].size_bytes + 2 * l.size_bytes)
                    for tile, tensor in ((q, Q), (do, dO)):
                        tk.tma.load_async(tile[ring.stage], tensor, (sequence, head, i, 0), arrived)
                    for vector, tensor in ((l, L), (delta, Delta)):
                        tk.tma.load_async(vector[ring.stage], tensor, (sequence, head, i), arrived)
                    ring.advance()

        with tk.warpgroups(1, 2, name="consumer") as consumer:
            tk.warpgroup.increase_registers(240)
            p, dp = (tk.rt(tk.fl, 16, QUERIES, name=name) for name in ("p", "dp"))
            p_bf, ds_bf = (tk.rt(tk.bf16, 16, QUERIES, name=name) for name in ("p_bf", "ds_bf"))
            dk_sum, dv_sum = (tk.rt(tk.fl, 16, d, name=name) for name in ("dk_sum", "dv_sum"))
            # In pieces of 64 columns, for want of registers.
            dq_part = tk.rt(tk.fl, 16, PIECE)
            of_query = tk.row_vec(p, name="of_query")
            tk.warp.zero(dk_sum)
            tk.warp.zero(dv_sum)
            first_key = block * (CONSUMERS * KEYS) + consumer * KEYS + tk.warpgroup.warpid() * 16
            tk.wait(kv_full[consumer], 0)
            ring = tk.ring(stages)
            for i in tk.range(first, n // QUERIES):
                tk.wait(full[ring.stage], ring.phase)
                tk.warpgroup.mm_ABt(p, k[consumer], q[ring.stage])
                tk.warpgroup.mm_ABt(dp, v[consumer], do[ring.stage])

                # P^T = exp2(scores - L) while the second product still runs.
                tk.warpgroup.mma_async_wait(1)
                tk.warp.load(of_query, l[ring.stage])
                tk.warp.mul(p, p, to_log2)
                tk.warp.sub_col(p, p, of_query)
                if causal:
                    with tk.when(first_key + 16 > i * QUERIES):
                        tk.warp.triu(p, p, first_key - i * QUERIES, -math.inf)
                tk.warp.exp2(p, p)
                tk.warp.copy(p_bf, p)

                # dS^T = P^T (dP^T - Delta).
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.mma_AB(dv_sum, p_bf, do[ring.stage])
                tk.warp.load(of_query, delta[ring.stage])
                tk.warp.sub_col(dp, dp, of_query)
                tk.warp.mul(dp, dp, p)
                tk.warp.copy(ds_bf, dp)
                tk.warpgroup.store(ds[consumer], ds_bf)
                tk.warpgroup.sync(consumer + 1)
                tk.warpgroup.mma_AB(dk_sum, ds_bf, q[ring.stage])
                for first_col in range(0, d, PIECE):
                    tk.warpgroup.mm_AtB(dq_part, ds[consumer], k[consumer].panels(first_col, PIECE))
                    if first_col == 0:
                        with tk.elect():
                            tk.tma.store_async_read_wait()
                    tk.warpgroup.mma_async_wait()
                    if first_col == 0:
                        tk.warpgroup.arrive(empty[ring.stage])
                        tk.warpgroup.sync(consumer + 1)
                    tk.warp.mul(dq_part, dq_part, root)
                    tk.warpgroup.store(dq[consumer].panels(first_col, PIECE), dq_part)
                tk.warpgroup.sync(consumer + 1)
                with tk.elect():
                    tk.tma.store_add_async(dQ, dq[consumer], (sequence, head, i, 0))
                ring.advance()

            # K and V have been read for the last time: their places serve for dK and dV.
            tk.warp.mul(dk_sum, dk_sum, root)
            tk.warpgroup.store(k[consumer], dk_sum)
            tk.warpgroup.store(v[consumer], dv_sum)
            tk.warpgroup.sync(consumer + 1)
            with tk.elect():
                for tensor, tile in ((dK, k), (dV, v)):
                    tk.tma.store_async(tensor, tile[consumer], (sequence, head, block * CONSUMERS + consumer, 0))
                tk.tma.store_async_wait()

    return attention_backward


def inputs(
    seed: int = 0, batch: int = 1, heads: int = 1, n: int = 256, d: int = 64, causal: bool = False, **_config
) -> tuple[np.ndarray, ...]:
    """Return random normal Q, K, V and dO in bf16, L and Delta that belong to them, and dQ of zeros."""
    q, k, v = attention.inputs(seed, batch, heads, n, d)
    do = np.random.default_rng(seed + 1).standard_normal(q.shape, np.float32).astype(ml_dtypes.bfloat16)
    (o, _), (sums, _) = attention.reference(q, k, v, causal=causal, lse=True)
    delta = (o * do.astype(np.float64)).sum(-1)
    return q, k, v, do, sums.astype(np.float32), delta.astype(np.float32), np.zeros(q.shape, np.float32)


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    do: np.ndarray,
    sums: np.ndarray,
    delta: np.ndarray,
    dq: np.ndarray,
    causal: bool = False,
) -> Any:
    """Return dQ, dK and dV in float64, each with the error to allow: weights, gradients of scores, dK and dV are rounded to
    bf16; L and Delta are given in f32.
    """
    q64, k64, v64, do64 = (x.astype(np.float64) for x in (q, k, v, do))

    def turned(x: np.ndarray) -> np.ndarray:
        return np.swapaxes(x, -1, -2)

    root = 1 / math.sqrt(q.shape[-1])
    scores = q64 @ turned(k64) * root * math.log2(math.e) - sums[..., None]
    p = np.exp2(np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf) if causal else scores)
    ds = p * (do64 @ turned(v64) - delta[..., None])
    size = p * (np.abs(do64) @ turned(np.abs(v64)) + np.abs(delta[..., None])) * 2.0**-12 + 2.0**-8 * np.abs(ds)
    exact_dq, exact_dk, exact_dv = dq + ds @ k64 * root, turned(ds) @ q64 * root, turned(p) @ do64
    return (
        (exact_dq, size @ np.abs(k64) * root),
        (exact_dk, 2.0**-8 * np.abs(exact_dk) + turned(size) @ np.abs(q64) * root),
        (exact_dv, 2.0**-8 * (np.abs(exact_dv) + turned(p) @ np.abs(do64))),
    )
