"""A made-up GEMM run for the tests of views: a tiny simulator of one producer and two consumer warpgroups per CTA.

It knows just enough of mbarriers, TMA and the tensor core to give every event kind that the views draw, in a plausible
order with plausible times; nothing in it is a claim about hardware.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from h100sim.trace import CTA_INFO, EVENT, WARP_INFO, Access, Cause, Copy, Event, Fence, KernelInfo, Space, Trace, Wait

SOURCE = """\
from h100sim import tk

@tk.kernel(grid=2, warpgroups=3)
def gemm(A, B, C):
    init(full, empty)
    tk.sync()
    with tk.producer():
        for ki in tk.range(steps):
            tk.wait(empty[s], phase ^ 1)
            tk.tma.expect_bytes(full[s], 32768)
            tk.tma.load_async(a[s], A, (row, ki), full[s])
            tk.tma.load_async(b[s], B, (ki, col), full[s])
    with tk.consumers() as wg:
        for ki in tk.range(steps):
            tk.wait(full[s], phase)
            tk.warpgroup.mma_AB(acc, a[s], b[s])
            tk.warpgroup.mma_async_wait()
            tk.arrive(empty[s])
        tk.warpgroup.store(c[wg], acc)
        tk.warpgroup.sync(wg + 1)
        tk.tma.store_async(C, c[wg], (row, col))
        tk.tma.store_async_wait()
"""

LOAD = "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"

#: (name, PTX text, line of SOURCE)
INSTRUCTIONS = (
    ("init", "mbarrier.init.shared::cta.b64 [%r1], 1;", 5),
    ("sync", "bar.sync 0;", 6),
    ("branch", "@%p1 bra CONSUMER;", 7),
    ("empty", "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], %r5;", 9),
    ("expect", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 32768;", 10),
    ("load_a", f"{LOAD} [%r7], [A, {{...}}], [%r6];", 11),
    ("load_b", f"{LOAD} [%r8], [B, {{...}}], [%r6];", 12),
    ("loop_p", "@%p3 bra PRODUCER;", 8),
    ("exit_p", "ret;", 8),
    ("full", "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r6], %r9;", 15),
    ("mma", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {...}, %rd1, %rd2, p, 1, 1, 0, 1;", 16),
    ("commit", "wgmma.commit_group.sync.aligned;", 16),
    ("wait", "wgmma.wait_group.sync.aligned 0;", 17),
    ("arrive", "mbarrier.arrive.shared::cta.b64 _, [%r4];", 18),
    ("loop_c", "@%p5 bra CONSUMER;", 14),
    ("store", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {...};", 19),
    ("fence", "fence.proxy.async.shared::cta;", 19),
    ("bar", "bar.sync %r11, 128;", 20),
    ("tma_store", "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [C, {...}], [%r12];", 21),
    ("bulk_commit", "cp.async.bulk.commit_group;", 21),
    ("bulk_wait", "cp.async.bulk.wait_group 0;", 22),
    ("exit_c", "ret;", 22),
)  # fmt: skip
PC = {name: i for i, (name, _, _) in enumerate(INSTRUCTIONS)}
HEADER = (".version 8.6", ".target sm_90a", ".address_size 64", ".visible .entry gemm()", "{")

FULL, EMPTY, A, B, C = 0x400, 0x420, 0x800, 0x10800, 0x20800
STAGES, A_BYTES, B_BYTES, C_BYTES = 4, 128 * 64 * 2, 64 * 128 * 2, 64 * 128 * 2
STAGE_BYTES = A_BYTES + B_BYTES


def kernel_info(ctas: int) -> KernelInfo:
    """Return the description of the made-up kernel."""
    first = len(HEADER) + 1
    return KernelInfo(
        name="gemm",
        ptx="\n".join([*HEADER, *("    " + text for _, text, _ in INSTRUCTIONS), "}"]),
        lines=tuple(range(first, first + len(INSTRUCTIONS))),
        opcodes=tuple(text.split("{")[0].split("[")[0].strip(" ;") for _, text, _ in INSTRUCTIONS),
        sources=tuple(("programs/gemm.py", line) for _, _, line in INSTRUCTIONS),
        grid=(ctas, 1, 1),
        block=(384, 1, 1),
        cluster=(1, 1, 1),
        device="h100-sxm",
        clock_mhz=1755,
        files={"programs/gemm.py": SOURCE},
        roles=(("producer", 0, 3), ("consumer 0", 4, 7), ("consumer 1", 8, 11)),
        tiles=(
            _tile("a", A, (128, 64), STAGES),
            _tile("b", B, (64, 128), STAGES),
            _tile("c", C, (64, 128), 2),
        ),
        semaphores=(
            {"name": "full", "offset": FULL, "count": STAGES},
            {"name": "empty", "offset": EMPTY, "count": STAGES},
        ),
    )


def _tile(name: str, offset: int, shape: tuple[int, int], count: int) -> dict:
    return {
        "name": name,
        "space": "shared",
        "offset": offset,
        "shape": list(shape),
        "dtype": "bf16",
        "swizzle": 128,
        "count": [count],
    }


@dataclass
class _Mbarrier:
    identity: int
    expected: int
    pending: int
    tx: int = 0
    phase: int = 0
    waiters: list = field(default_factory=list)


class Gemm:
    """The simulator: warps are generators of (cycles to the next instruction) that emit events as they go."""

    def __init__(self, ctas: int = 2, steps: int = 8):
        self.ctas, self.steps = ctas, steps
        self.events: list[tuple] = []
        self.heap: list[tuple] = []
        self.sequence = self.identity = self.op = 0
        self.now = 0
        self.lanes: list[np.ndarray] = []

    def run(self) -> Trace:
        """Run all CTAs and return the trace."""
        starts, ends = [], []
        for cta in range(self.ctas):
            starts.append(100 * cta)
            self.at(100 * cta, self.cta, cta)
        while self.heap:
            self.now, _, call, args = heapq.heappop(self.heap)
            call(*args)
        events = np.array(self.events, EVENT)
        ends = [int(events["time"][events["cta"] == cta].max()) for cta in range(self.ctas)]
        warps = [(cta, rank, cta, rank % 4) for cta in range(self.ctas) for rank in range(12)]
        ctas = [(cta, cta, starts[cta], ends[cta], cta, 0) for cta in range(self.ctas)]
        lanes = np.array(self.lanes, np.int64).reshape(-1, 32)
        return Trace(kernel_info(self.ctas), events, lanes, np.array(warps, WARP_INFO), np.array(ctas, CTA_INFO), max(ends))

    def at(self, time, call, *args):
        self.sequence += 1
        heapq.heappush(self.heap, (time, self.sequence, call, args))

    def emit(self, kind, cta, warp=-1, pc=-1, mask=0xFFFFFFFF, op=-1, a=0, b=0, c=0, d=0, time=None):
        self.events.append((self.now if time is None else time, kind, cta, warp, pc, mask, op, a, b, c, d))

    def cta(self, cta):
        self.emit(Event.CTA_STARTED, cta, a=cta)
        state = {"tensor": 0, "tma": 0, "barriers": {}, "named": {}}
        for base, expected in ((FULL, 1), (EMPTY, 2)):
            for s in range(STAGES):
                self.emit(Event.ISSUED, cta, cta * 12, PC["init"], a=1, b=Cause.DEPENDENCY)
                state["barriers"][base + 8 * s] = _Mbarrier(self.identity, expected, expected)
                self.emit(
                    Event.MBARRIER_INITIALISED, cta, cta * 12, PC["init"], mask=1, a=self.identity, b=cta, c=expected,
                    d=base + 8 * s,
                )  # fmt: skip
                self.identity += 1
        for rank in range(12):
            warp = self.producer if rank == 0 else self.idle if rank < 4 else self.consumer
            self.at(self.now + 10 + rank, self.advance, warp(state, cta, rank))

    def advance(self, warp):
        wait = next(warp, None)
        if wait is not None:
            self.at(self.now + wait, self.advance, warp)

    def issue(self, cta, rank, name, stall=0, cause=Cause.NONE):
        self.emit(Event.ISSUED, cta, cta * 12 + rank, PC[name], a=stall, b=cause)
        return cta * 12 + rank, PC[name]

    def sync(self, state, cta, rank, name, barrier, threads):
        warp, pc = self.issue(cta, rank, name)
        named = state["named"].setdefault(barrier, {"arrived": 0, "generation": 0})
        generation = named["generation"]
        named["arrived"] += 32
        self.emit(Event.BARRIER_ARRIVED, cta, warp, pc, a=barrier, b=named["arrived"], c=threads, d=1)
        if named["arrived"] == threads:
            named.update(arrived=0, generation=generation + 1)
            self.emit(Event.BARRIER_RELEASED, cta, a=barrier, b=generation)
        else:
            self.emit(Event.BLOCKED, cta, warp, pc, a=Wait.BARRIER, b=barrier, c=generation)
            since = self.now
            while named["generation"] == generation:
                yield 5
            self.emit(Event.RESUMED, cta, warp, pc, a=Wait.BARRIER, b=barrier, c=self.now - since)
        self.emit(Event.BARRIER_SYNCED, cta, warp, pc, a=barrier, b=generation)
        yield 12

    def wait_mbarrier(self, state, cta, rank, name, address, parity):
        warp, pc = self.issue(cta, rank, name)
        barrier, since = state["barriers"][address], self.now
        if barrier.phase & 1 == parity:
            self.emit(Event.BLOCKED, cta, warp, pc, a=Wait.MBARRIER, b=barrier.identity, c=parity)
            while barrier.phase & 1 == parity:
                yield 7
            self.emit(Event.RESUMED, cta, warp, pc, a=Wait.MBARRIER, b=barrier.identity, c=self.now - since)
        self.emit(Event.MBARRIER_WAITED, cta, warp, pc, a=barrier.identity, b=parity, c=1, d=barrier.phase - 1)
        yield 20

    def flip_if_complete(self, cta, barrier):
        if barrier.pending == 0 and barrier.tx == 0:
            self.emit(Event.MBARRIER_FLIPPED, cta, a=barrier.identity, b=barrier.phase)
            barrier.phase, barrier.pending = barrier.phase + 1, barrier.expected

    def arrive(self, cta, warp, pc, barrier):
        barrier.pending -= 1
        self.emit(Event.MBARRIER_ARRIVED, cta, warp, pc, mask=1, a=barrier.identity, b=1, c=barrier.pending, d=barrier.phase)
        self.flip_if_complete(cta, barrier)

    def idle(self, state, cta, rank):
        yield from self.sync(state, cta, rank, "sync", 0, 384)
        self.issue(cta, rank, "branch")
        yield 2
        warp, pc = self.issue(cta, rank, "exit_p")
        self.emit(Event.EXITED, cta, warp, pc)

    def producer(self, state, cta, rank):
        yield from self.sync(state, cta, rank, "sync", 0, 384)
        self.issue(cta, rank, "branch")
        yield 2
        for k in range(self.steps):
            s, parity = k % STAGES, (k // STAGES) & 1
            full = state["barriers"][FULL + 8 * s]
            yield from self.wait_mbarrier(state, cta, rank, "empty", EMPTY + 8 * s, parity ^ 1)
            warp, pc = self.issue(cta, rank, "expect", 12, Cause.DEPENDENCY)
            full.tx += STAGE_BYTES
            self.emit(Event.MBARRIER_EXPECTED, cta, warp, pc, mask=1, a=full.identity, b=STAGE_BYTES, c=full.tx, d=full.phase)
            self.arrive(cta, warp, pc, full)
            yield 8
            for name, address, size in (("load_a", A + s * A_BYTES, A_BYTES), ("load_b", B + s * B_BYTES, B_BYTES)):
                warp, pc = self.issue(cta, rank, name)
                self.copy(state, cta, warp, pc, Copy.TENSOR_LOAD, address, size, full)
                yield 64
            self.issue(cta, rank, "loop_p")
            yield 12
        warp, pc = self.issue(cta, rank, "exit_p")
        self.emit(Event.EXITED, cta, warp, pc)

    def copy(self, state, cta, warp, pc, kind, address, size, barrier):
        op, self.op = self.op, self.op + 1
        identity = barrier.identity if barrier else -1
        self.emit(Event.TMA_ISSUED, cta, warp, pc, mask=1, op=op, a=kind, b=size, c=address, d=identity)
        start = max(self.now + 40, state["tma"])
        state["tma"] = start + size // 113
        self.at(start, self.emit, Event.TMA_STARTED, cta, -1, -1, 0, op)
        if barrier is None:
            self.at(state["tma"] + 50, self.emit, Event.TMA_READ, cta, -1, -1, 0, op)
        self.at(start + 420 + size // 113, self.copied, cta, op, kind, address, size, barrier)
        return start + 420 + size // 113

    def copied(self, cta, op, kind, address, size, barrier):
        identity = barrier.identity if barrier else -1
        self.emit(Event.TMA_COMPLETED, cta, op=op, a=kind, b=size, c=address, d=identity)
        if barrier:
            barrier.tx -= size
            self.emit(
                Event.MBARRIER_COMPLETED_TX, cta, op=op, a=identity, b=size, c=barrier.tx, d=barrier.phase
            )  # fmt: skip
            self.flip_if_complete(cta, barrier)

    def consumer(self, state, cta, rank):
        group = rank // 4
        mine = state.setdefault(group, {"ops": {}, "done": {}})
        yield from self.sync(state, cta, rank, "sync", 0, 384)
        self.issue(cta, rank, "branch")
        yield 2
        for k in range(self.steps):
            s, parity = k % STAGES, (k // STAGES) & 1
            yield from self.wait_mbarrier(state, cta, rank, "full", FULL + 8 * s, parity)
            for step in range(4):
                warp, pc = self.issue(cta, rank, "mma", 4 * step, Cause.TENSOR_CORE)
                self.wgmma(state, mine, cta, warp, pc, (k, step), s, group - 1)
                yield 6
            warp, pc = self.issue(cta, rank, "commit")
            self.emit(Event.WGMMA_COMMITTED, cta, warp, pc, a=k, c=4 * k + 3)
            yield 2
            warp, pc = self.issue(cta, rank, "wait")
            self.emit(Event.BLOCKED, cta, warp, pc, a=Wait.WGMMA, b=group, c=k)
            since = self.now
            yield max(1, mine["done"][k, 3] - self.now + rank % 4)
            self.emit(Event.RESUMED, cta, warp, pc, a=Wait.WGMMA, b=group, c=self.now - since)
            self.emit(Event.WGMMA_WAITED, cta, warp, pc, a=k)
            yield 3
            if rank % 4 == 0:
                warp, pc = self.issue(cta, rank, "arrive", 3, Cause.DEPENDENCY)
                self.arrive(cta, warp, pc, state["barriers"][EMPTY + 8 * s])
            yield 8
            self.issue(cta, rank, "loop_c")
            yield 12
        yield from self.epilogue(state, cta, rank)

    def wgmma(self, state, mine, cta, warp, pc, key, stage, consumer):
        if key not in mine["ops"]:
            mine["ops"][key], self.op = self.op, self.op + 1
            start = max(self.now + 12, state["tensor"])
            state["tensor"] = start + 64
            mine["done"][key] = start + 64 + 54
            self.at(start, self.emit, Event.WGMMA_STARTED, cta, warp, -1, 0, mine["ops"][key])
            self.at(start + 118, self.emit, Event.WGMMA_COMPLETED, cta, warp, -1, 0, mine["ops"][key])
        a = (A + stage * A_BYTES + consumer * A_BYTES // 2 + 32 * key[1]) >> 4
        b = (B + stage * B_BYTES + 2048 * key[1]) >> 4
        self.emit(Event.WGMMA_ISSUED, cta, warp, pc, op=mine["ops"][key], a=a, b=b | 1 << 62, c=4 * key[0] + key[1])

    def epilogue(self, state, cta, rank):
        group = rank // 4 - 1
        for part in range(4):
            warp, pc = self.issue(cta, rank, "store", 2, Cause.MEMORY)
            row = C + group * C_BYTES + (rank % 4) * 2048 + part * 16
            self.emit(
                Event.MEMORY, cta, warp, pc, a=len(self.lanes), b=16, c=Space.SHARED, d=Access.WRITE
            )  # fmt: skip
            self.emit(Event.BANK_CONFLICT, cta, warp, pc, a=32, b=4)
            self.lanes.append(row + 128 * (np.arange(32) % 16) + 8192 * (np.arange(32) // 16))
            yield 14
        warp, pc = self.issue(cta, rank, "fence")
        self.emit(Event.FENCED, cta, warp, pc, a=Fence.PROXY_ASYNC_SHARED)
        yield 20
        yield from self.sync(state, cta, rank, "bar", group + 1, 128)
        if rank % 4 == 0:
            warp, pc = self.issue(cta, rank, "tma_store")
            done = self.copy(state, cta, warp, pc, Copy.TENSOR_STORE, C + group * C_BYTES, C_BYTES, None)
            yield 30
            warp, pc = self.issue(cta, rank, "bulk_commit")
            self.emit(Event.BULK_COMMITTED, cta, warp, pc, mask=1, a=0)
            yield 4
            warp, pc = self.issue(cta, rank, "bulk_wait")
            self.emit(Event.BLOCKED, cta, warp, pc, mask=1, a=Wait.BULK, b=0, c=0)
            since = self.now
            yield done - self.now + 1
            self.emit(Event.RESUMED, cta, warp, pc, mask=1, a=Wait.BULK, b=0, c=self.now - since)
            self.emit(Event.BULK_WAITED, cta, warp, pc, mask=1, a=0, b=0)
            yield 4
        warp, pc = self.issue(cta, rank, "exit_c")
        self.emit(Event.EXITED, cta, warp, pc)
        state["exited"] = state.get("exited", 0) + 1
        if state["exited"] == 8:
            self.emit(Event.CTA_ENDED, cta)


def make_trace(ctas: int = 2, steps: int = 8) -> Trace:
    """Return the trace of a made-up GEMM."""
    return Gemm(ctas, steps).run()


@dataclass
class FilledReplay:
    """A replay whose stages hold the numbers from 0 up, in bf16, in the order of their panels, once copied."""

    trace: Trace
    hazards: tuple = ()

    def shared_at(self, event_index: int, cta: int) -> np.ndarray:
        memory = np.zeros(232448, np.uint8)
        events = self.trace.events[: event_index + 1]
        done = events[(events["kind"] == Event.TMA_COMPLETED) & (events["cta"] == cta) & (events["b"] == A_BYTES)]
        for address in done["c"]:
            if A <= address < C:
                values = np.arange(128 * 64, dtype=np.float32)
                bits = (values.view(np.uint32) >> 16).astype(np.uint16)
                linear = address + 2 * np.arange(128 * 64)
                stored = linear ^ (((linear % 1024) >> 7) << 4)
                memory[stored] = bits & 0xFF
                memory[stored + 1] = bits >> 8
        return memory
