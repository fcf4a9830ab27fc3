"""O = softmax(Q K^T / sqrt(d)) V, forward, as ThunderKittens' attention: one producer, consumers with 64 queries each.

Every consumer keeps its queries in shared memory and walks over blocks of keys and values: scores stay in registers,
where an online softmax turns them into the bf16 operand of the second product. Keys and values have semaphores of
their own, so that the first product need not wait for values.

Without further settings a consumer does one thing after the other: scores, softmax, product with the values.
``overlap`` starts the scores of the next block before it, so that the tensor core works while the softmax runs;
``order`` makes two consumers take turns at the tensor core by named barriers, so that one's softmax falls into the
other's products (FlashAttention-3's ping-pong). The bits of O do not depend on either.
"""

# mypy: disable-error-code="valid-type"

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "two chained products, A from registers, online softmax, causal masks, GQA, ping-pong"
CONFIG = {"batch": 1, "heads": 1, "n": 256, "d": 64, "consumers": 2}

#: Registers per thread of the producer and of each of 1, 2 or 3 consumers.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = {1: 40, 2: 24, 3: 32}, {1: 248, 2: 240, 3: 160}
#: Named barriers 1, 2 and 3 belong to one consumer each; these are the turns of two consumers.
FIRST_TURN = 4


@dataclass(frozen=True)
class _Ring:
    """Blocks of keys or values in shared memory, and the semaphores that tell when one is full or empty."""

    tiles: Any
    full: Any
    empty: Any


class _Softmax:
    """The online softmax of one consumer: the running maximum and sum of every row of its scores, in registers."""

    def __init__(self, scores: Any, d: int):
        # Scores are kept times 1 / sqrt(d) and in units of log2, so that exp2 serves for exp.
        self.scale = math.log2(math.e) / math.sqrt(d)
        self.highest, self.lowered, self.before, self.norm = (
            tk.col_vec(scores, name=x) for x in ("highest", "lowered", "before", "norm")
        )
        tk.warp.neg_infty(self.highest)
        tk.warp.zero(self.norm)

    def apply(self, scores: Any) -> None:
        """Turn scores into weights relative to the new maximum; ``before`` becomes the factor of all earlier ones."""
        tk.warp.mul(self.before, self.highest, self.scale)
        tk.warp.row_max(self.highest, scores, self.highest)
        tk.warp.mul(self.lowered, self.highest, -self.scale)
        tk.warp.mul(scores, scores, self.scale)
        tk.warp.add_row(scores, scores, self.lowered)
        tk.warp.exp2(scores, scores)
        tk.warp.add(self.before, self.before, self.lowered)
        tk.warp.exp2(self.before, self.before)
        tk.warp.mul(self.norm, self.norm, self.before)
        tk.warp.row_sum(self.norm, scores, self.norm)

    def log_sum(self) -> None:
        """Leave in ``norm`` the binary logarithm of every row's sum of exp(scores / sqrt(d))."""
        tk.warp.log2(self.norm, self.norm)
        tk.warp.sub(self.norm, self.norm, self.lowered)


def build(
    batch: int = 1,
    heads: int = 1,
    n: int = 256,
    d: int = 64,
    kv: int = 128,
    stages: int = 2,
    consumers: int = 2,
    causal: bool = False,
    kv_heads: int = 0,
    overlap: bool = False,
    order: bool = False,
    lse: bool = False,
) -> tk.Kernel:
    """Return the kernel for Q, K, V and O of batch x heads x n x d in bf16.

    ``n`` need not be a multiple of anything. ``kv``: keys in a block; ``consumers``: warpgroups of 64 queries.
    ``kv_heads``: heads of K and V, each shared by heads / kv_heads of Q (0: as many as heads). ``lse``: the kernel also
    writes L, of batch x heads x n in f32: the binary logarithm of each row's sum of exponentials, as the backward pass
    needs it. Raises UsageError for sizes that do not tile.
    """
    kv_heads = kv_heads or heads
    _check(batch, heads, kv_heads, n, d, kv, consumers, order, lse)
    queries, share = 64 * consumers, heads // kv_heads
    blocks_of_keys = -(-n // kv)
    shape, kv_shape = tk.gl(tk.bf16, batch, heads, n, d), tk.gl(tk.bf16, batch, kv_heads, n, d)

    def body(Q, K, V, O, L=None):  # noqa: E741
        q = tk.st(tk.bf16, 64, d, count=consumers)
        k, v = tk.st(tk.bf16, kv, d, count=stages), tk.st(tk.bf16, kv, d, count=stages)
        sums = tk.sv(tk.fl, 64, count=consumers) if lse else None
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
        kv_head = head // share if share > 1 else head
        needed = ((block + 1) * queries + kv - 1) // kv
        blocks = tk.minimum(needed, blocks_of_keys) if causal else blocks_of_keys

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
                    tk.tma.load_async(k[ring.stage], K, (sequence, kv_head, j, 0), k_full[ring.stage])
                    tk.wait(v_empty[ring.stage], ring.phase ^ 1)
                    tk.tma.expect_bytes(v_full[ring.stage], v[0].size_bytes)
                    tk.tma.load_async(v[ring.stage], V, (sequence, kv_head, j, 0), v_full[ring.stage])
                    ring.advance()

        with tk.warpgroups(*range(1, 1 + consumers), name="consumer") as consumer:
            tk.warpgroup.increase_registers(CONSUMER_REGISTERS[consumers])
            scores, out = tk.rt(tk.fl, 16, kv), tk.rt(tk.fl, 16, d)
            softmax = _Softmax(scores, d)
            tk.warp.zero(out)
            first_row = block * queries + consumer * 64 + tk.warpgroup.warpid() * 16

            def mask(j):
                if causal:
                    with tk.when((j + 1) * kv > first_row):
                        tk.warp.make_causal(scores, scores, first_row, j * kv, -math.inf)
                if n % kv:
                    with tk.when(j == blocks_of_keys - 1):
                        tk.warp.right_fill(scores, scores, n % kv, -math.inf)

            tk.wait(q_full[consumer], 0)
            keys, values = _Ring(k, k_full, k_empty), _Ring(v, v_full, v_empty)
            if overlap or order:
                turns = _Turns(consumer) if order else None
                _overlapping(q[consumer], keys, values, scores, out, softmax, mask, blocks, overlap, turns)
            else:
                _one_after_the_other(q[consumer], keys, values, scores, out, softmax, mask, blocks)

            tk.warp.div_row(out, out, softmax.norm)
            tk.warpgroup.store(q[consumer], out)
            if sums is not None:
                softmax.log_sum()
                tk.warpgroup.store(sums[consumer], softmax.norm)
            tk.warpgroup.sync(consumer + 1)
            with tk.elect():
                tk.tma.store_async(O, q[consumer], (sequence, head, block * consumers + consumer, 0))
                if sums is not None:
                    tk.tma.store_async(L, sums[consumer], (sequence, head, block * consumers + consumer))
                tk.tma.store_async_wait()

    def attention(Q, K, V, O):  # noqa: E741
        body(Q, K, V, O)

    def attention_lse(Q, K, V, O, L):  # noqa: E741
        body(Q, K, V, O, L)

    grid, warpgroups = (-(-n // queries), heads, batch), 1 + consumers
    if not lse:
        return tk.kernel(grid=grid, warpgroups=warpgroups, Q=shape, K=kv_shape, V=kv_shape, O=shape)(attention)
    # L has its sequence in columns, so that a vector of 64 rows is one tile of it.
    rows = tk.gl(tk.fl, batch, heads, n)
    return tk.kernel(grid=grid, warpgroups=warpgroups, Q=shape, K=kv_shape, V=kv_shape, O=shape, L=rows)(attention_lse)


def _check(batch: int, heads: int, kv_heads: int, n: int, d: int, kv: int, consumers: int, order: bool, lse: bool) -> None:
    """Raise UsageError for settings that the kernel cannot have."""
    for name, size in (("batch", batch), ("heads", heads), ("n", n)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    if kv % 64 or not 64 <= kv <= 256:
        raise UsageError(f"kv must be 64, 128, 192 or 256, not {kv}")
    if d not in (64, 128):
        raise UsageError(f"d must be 64 or 128, not {d}")
    if consumers not in CONSUMER_REGISTERS:
        raise UsageError(f"consumers must be from 1 to 3, not {consumers}")
    if kv_heads < 1 or heads % kv_heads:
        raise UsageError(f"kv_heads must divide the {heads} heads, not be {kv_heads}")
    if order and consumers != 2:
        raise UsageError(f"order must have 2 consumers to take turns, not {consumers}")
    if lse and n % 4:
        raise UsageError(f"n must be a multiple of 4 with lse (TMA's strides are multiples of 16 bytes), not {n}")


class _Turns:
    """Two consumers take turns at the tensor core: each waits at a barrier of its own, where the other arrives."""

    def __init__(self, consumer: Any):
        self.consumer = consumer
        self.mine = tk.barrier(consumer + FIRST_TURN, 2)
        self.others = tk.barrier((consumer ^ 1) + FIRST_TURN, 2)
        with tk.when(consumer == 1):
            tk.warpgroup.arrive(self.others)

    def begin(self) -> None:
        """Wait for this consumer's turn."""
        tk.warpgroup.sync(self.mine)

    def end(self) -> None:
        """Give the turn to the other consumer."""
        tk.warpgroup.arrive(self.others)

    def finish(self) -> None:
        """Take the turn that is left over, so that no barrier is half full at the end."""
        with tk.when(self.consumer == 0):
            tk.warpgroup.sync(self.mine)


def _one_after_the_other(
    q: Any, keys: _Ring, values: _Ring, scores: Any, out: Any, softmax: _Softmax, mask: Any, blocks: Any
) -> None:
    """Walk over the blocks: scores, softmax, product with the values, each of them to its end."""
    weights = tk.rt(tk.bf16, 16, scores.cols)
    ring = tk.ring(keys.tiles.count[0])
    for j in tk.range(blocks):
        tk.wait(keys.full[ring.stage], ring.phase)
        tk.warpgroup.mm_ABt(scores, q, keys.tiles[ring.stage])
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.arrive(keys.empty[ring.stage])
        mask(j)
        softmax.apply(scores)
        tk.warp.copy(weights, scores)
        tk.warp.mul_row(out, out, softmax.before)
        tk.wait(values.full[ring.stage], ring.phase)
        tk.warpgroup.mma_AB(out, weights, values.tiles[ring.stage])
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.arrive(values.empty[ring.stage])
        ring.advance()


def _overlapping(
    q: Any,
    keys: _Ring,
    values: _Ring,
    scores: Any,
    out: Any,
    softmax: _Softmax,
    mask: Any,
    blocks: Any,
    overlap: bool,
    turns: _Turns | None,
) -> None:
    """Walk over the blocks with the products of two of them side by side: the next scores and the last weights times
    their values. With ``overlap`` the softmax of the next scores runs beside the latter; with ``turns`` both products
    are started in this consumer's turn.
    """
    weights = tk.rt(tk.bf16, 16, scores.cols)
    stages = keys.tiles.count[0]
    ahead, behind = tk.ring(stages), tk.ring(stages)

    tk.wait(keys.full[ahead.stage], ahead.phase)
    if turns:
        turns.begin()
    tk.warpgroup.mm_ABt(scores, q, keys.tiles[ahead.stage])
    if turns:
        turns.end()
    tk.warpgroup.mma_async_wait()
    tk.warpgroup.arrive(keys.empty[ahead.stage])
    ahead.advance()
    mask(tk.var(0))
    softmax.apply(scores)
    tk.warp.copy(weights, scores)
    for j in tk.range(1, blocks):
        tk.wait(keys.full[ahead.stage], ahead.phase)
        tk.wait(values.full[behind.stage], behind.phase)
        if turns:
            turns.begin()
        tk.warpgroup.mm_ABt(scores, q, keys.tiles[ahead.stage])
        tk.warpgroup.mma_AB(out, weights, values.tiles[behind.stage])
        if turns:
            turns.end()
        tk.warpgroup.mma_async_wait(1 if overlap else 0)
        tk.warpgroup.arrive(keys.empty[ahead.stage])
        mask(j)
        softmax.apply(scores)
        if overlap:
            tk.warpgroup.mma_async_wait()
        tk.warpgroup.arrive(values.empty[behind.stage])
        tk.warp.copy(weights, scores)
        tk.warp.mul_row(out, out, softmax.before)
        ahead.advance()
        behind.advance()
    tk.wait(values.full[behind.stage], behind.phase)
    tk.warpgroup.mma_AB(out, weights, values.tiles[behind.stage])
    tk.warpgroup.mma_async_wait()
    tk.warpgroup.arrive(values.empty[behind.stage])
    if turns:
        turns.finish()


def inputs(
    seed: int = 0, batch: int = 1, heads: int = 1, n: int = 256, d: int = 64, kv_heads: int = 0, **_config
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random normal Q, K and V in bf16."""
    rng = np.random.default_rng(seed)
    q, k, v = (
        rng.standard_normal((batch, h, n, d), np.float32).astype(ml_dtypes.bfloat16)
        for h in (heads, kv_heads or heads, kv_heads or heads)
    )
    return q, k, v


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False, lse: bool = False) -> Any:
    """Return attention in float64 and the error to allow: weights and outputs are rounded to bf16. With ``lse`` also L
    (in units of log2) and its error: scores are sums in the tensor core, the logarithm is approximate.
    """
    share = q.shape[1] // k.shape[1]
    q64, k64, v64 = (x.astype(np.float64) for x in (q, np.repeat(k, share, 1), np.repeat(v, share, 1)))
    scores = q64 @ np.swapaxes(k64, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf)
    highest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - highest)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    exact = weights @ v64
    output = exact, 2.0**-8 * (np.abs(exact) + weights @ np.abs(v64))
    if not lse:
        return output
    sums = (np.log2(total) + highest * math.log2(math.e))[..., 0]
    return output, (sums, 2.0**-16 * (1 + np.abs(sums)))
