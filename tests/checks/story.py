"""Tells a run as a story: a few lines of what warps and units did become the events that the machine would have made.

The story keeps just enough state (mbarrier phases, generations, groups) for the events to be consistent; its teller
decides the schedule, so a test can show that a hazard is found although the timing was lucky.
"""

from __future__ import annotations

import numpy as np

from h100sim.checks import Checker, Hazard
from h100sim.ptx.module import Imm, Instruction, Reg, Register, Vector
from h100sim.trace import CTA_INFO, EVENT, WARP_INFO, Access, Copy, Event, Fence, KernelInfo, Space

FULL_MASK = 0xFFFFFFFF
GLOBAL = 0x100000


def registers(names: str) -> Vector:
    """Return a vector of f32 registers by name; equal names are the same register."""
    return Vector(tuple(Reg(Register(sum(ord(c) << 8 * i for i, c in enumerate(n)), n, "f32")) for n in names.split()))


class Story:
    """A launch of ``ctas`` CTAs of ``warps`` warps. Warps are numbered through the launch; warp w belongs to CTA w //
    warps."""

    def __init__(self, warps: int = 4, ctas: int = 1, cluster: int = 1, roles=(), semaphores=()):
        self.warps, self.ctas, self.cluster = warps, ctas, cluster
        self.roles, self.semaphores = roles, semaphores
        self.events: list[tuple] = []
        self.lanes: list[np.ndarray] = []
        self.instructions: list[Instruction] = []
        self.pcs: dict = {}
        self.bars: dict[int, dict] = {}
        self.named: dict[tuple[int, int], dict] = {}
        self.ops: dict[int, dict] = {}
        self.groups = dict.fromkeys(range(warps * ctas), 0)
        self.sequence = [[0, 0] for _ in range(warps * ctas)]
        self.now = 0
        for cta in range(ctas):
            self.emit(Event.CTA_STARTED, cta, a=cta)

    # --- plumbing -----------------------------------------------------------------------------------------------------

    def emit(self, kind, cta, warp=-1, pc=-1, mask=FULL_MASK, op=-1, a=0, b=0, c=0, d=0):
        self.now += 1
        self.events.append((self.now, kind, cta, warp, pc, mask, op, a, b, c, d))

    def pc(self, opcode: str, operands=(), key=None) -> int:
        """Return the pc of an instruction, the same for equal opcode, operands and key."""
        found = (opcode, operands, key)
        if found not in self.pcs:
            base, *modifiers = opcode.split(".")
            types = tuple(m for m in modifiers if m in ("f32", "f16", "bf16", "e4m3"))
            self.pcs[found] = len(self.instructions)
            self.instructions.append(
                Instruction(opcode, base, tuple(m for m in modifiers if m not in types), types, operands, None, 1, 1)
            )
        return self.pcs[found]

    def by(self, kind, warp, opcode, operands=(), key=None, **fields):
        self.emit(kind, warp // self.warps, warp, self.pc(opcode, operands, key), **fields)

    def issue(self, warps, opcode, operands=(), mask=FULL_MASK):
        for warp in _many(warps):
            self.by(Event.ISSUED, warp, opcode, operands, mask=mask)

    def checker(self, mode="on") -> Checker:
        n = len(self.instructions)
        kernel = KernelInfo(
            name="story", ptx="", lines=tuple(range(1, n + 1)), opcodes=tuple(i.opcode for i in self.instructions),
            sources=(None,) * n, grid=(self.ctas, 1, 1), block=(32 * self.warps, 1, 1), cluster=(self.cluster, 1, 1),
            device="h100-sxm", clock_mhz=1755, roles=self.roles, semaphores=self.semaphores,
        )  # fmt: skip
        return Checker(kernel, tuple(self.instructions), mode)

    def hazards(self, mode="on", chunk=None) -> list[Hazard]:
        """End all CTAs and return what the checker finds, fed in chunks of ``chunk`` events."""
        self.end()
        checker = self.checker(mode)
        self.feed(checker, chunk)
        return checker.finish()[0]

    def feed(self, checker: Checker, chunk=None) -> None:
        """Feed the events so far, in chunks of ``chunk``."""
        events = np.array(self.events, EVENT)
        lanes = np.array(self.lanes, np.int64).reshape(-1, 32)
        warps = np.array([(w // self.warps, w % self.warps, 0, 0) for w in range(self.warps * self.ctas)], WARP_INFO)
        ctas = np.array([(c, c, 0, 0, c // self.cluster, c % self.cluster) for c in range(self.ctas)], CTA_INFO)
        for start in range(0, len(events), chunk or len(events)):
            checker.feed(events[start : start + (chunk or len(events))], lanes, warps, ctas, lanes_start=0)

    def found(self, mode="on") -> list[tuple[str, str]]:
        """Return (kind, message) of every hazard."""
        return [(h.kind, h.message) for h in self.hazards(mode)]

    def end(self):
        exited = {e[3] for e in self.events if e[1] == Event.EXITED}
        for warp in range(self.warps * self.ctas):
            if warp not in exited:
                self.exit(warp)
        for cta in range(self.ctas):
            self.emit(Event.CTA_ENDED, cta)

    def exit(self, warps):
        for warp in _many(warps):
            self.by(Event.EXITED, warp, "ret")

    # --- memory -------------------------------------------------------------------------------------------------------

    def access(self, warps, opcode, address, size, space, access, key=None, lanes=range(32)):
        """Every warp touches ``size`` bytes per lane at ``address``, consecutive over its lanes and over the warps."""
        for i, warp in enumerate(_many(warps)):
            row = np.full(32, -1, np.int64)
            for k, lane in enumerate(lanes):
                row[lane] = address + size * (k + i * len(lanes))
            self.lanes.append(row)
            mask = sum(1 << lane for lane in lanes)
            self.by(
                Event.MEMORY, warp, opcode, key=key, mask=mask, a=len(self.lanes) - 1, b=size, c=space, d=access
            )  # fmt: skip

    def write(self, warps, address, size=4, **kw):
        self.access(warps, "st.shared.b32", address, size, Space.SHARED, Access.WRITE, **kw)

    def read(self, warps, address, size=4, **kw):
        self.access(warps, "ld.shared.b32", address, size, Space.SHARED, Access.READ, **kw)

    def write_global(self, warps, address, size=4, access=Access.WRITE, **kw):
        self.access(warps, "st.global.b32", address, size, Space.GLOBAL, access, **kw)

    def read_global(self, warps, address, size=4, access=Access.READ, **kw):
        self.access(warps, "ld.global.b32", address, size, Space.GLOBAL, access, **kw)

    def cp_async(self, warps, address, size=16):
        for i, warp in enumerate(_many(warps)):
            at = address + 32 * size * i
            self.access(warp, "cp.async.cg.shared.global", at, size, Space.SHARED, Access.WRITE | Access.ASYNC)
            self.issue(warp, "cp.async.cg.shared.global")

    def warp_sync(self, *warps):
        self.issue(warps, "bar.warp.sync", (Imm(FULL_MASK),))

    def fence(self, warps, kind=Fence.PROXY_ASYNC_SHARED):
        for warp in _many(warps):
            self.by(Event.FENCED, warp, "fence", key=kind, a=kind)

    # --- barriers -----------------------------------------------------------------------------------------------------

    def init(self, warp, bar, count, cta=None, at=None):
        cta = warp // self.warps if cta is None else cta
        address = (cta % self.cluster) << 24 | (at or 0x400 + 8 * bar)
        self.bars[bar] = {"expected": count, "pending": count, "tx": 0, "phase": 0, "cta": cta}
        self.by(Event.MBARRIER_INITIALISED, warp, "mbarrier.init", a=bar, b=cta, c=count, d=address)

    def arrive(self, warps, bar, count=1, tx=None, opcode="mbarrier.arrive"):
        for warp in _many(warps):
            b = self.bars[bar]
            if tx is not None:
                b["tx"] += tx
                self.by(Event.MBARRIER_EXPECTED, warp, opcode, a=bar, b=tx, c=b["tx"], d=b["phase"])
            b["pending"] -= count
            self.by(Event.MBARRIER_ARRIVED, warp, opcode, a=bar, b=count, c=b["pending"], d=b["phase"])
            self._flip(bar)

    def _flip(self, bar):
        b = self.bars[bar]
        if b["pending"] == 0 and b["tx"] == 0:
            self.emit(Event.MBARRIER_FLIPPED, b["cta"], a=bar, b=b["phase"])
            b.update(phase=b["phase"] + 1, pending=b["expected"])

    def wait(self, warps, bar, parity):
        for warp in _many(warps):
            b = self.bars[bar]
            done = b["phase"] & 1 != parity
            seen = b["phase"] - 1 if done else -1
            self.by(Event.MBARRIER_WAITED, warp, "mbarrier.try_wait", a=bar, b=parity, c=int(done), d=seen)

    def barrier(self, warps, number=0, sync=True, count=None):
        """Warps arrive at a named barrier one after the other; those that sync pass once the count is reached."""
        total = count or 32 * self.warps
        operands = (Imm(number),) if count is None else (Imm(number), Imm(count))
        opcode = "barrier.cta.sync" if sync else "barrier.cta.arrive"
        for warp in _many(warps):
            b = self.named.setdefault((warp // self.warps, number), {"arrived": 0, "generation": 0, "waiting": []})
            b["arrived"] += 32
            self.by(Event.BARRIER_ARRIVED, warp, opcode, operands, a=number, b=b["arrived"], c=total, d=int(sync))
            if sync:
                b["waiting"].append(warp)
            if b["arrived"] >= total:
                self.emit(Event.BARRIER_RELEASED, warp // self.warps, a=number, b=b["generation"])
                for waiting in b["waiting"]:
                    self.by(Event.BARRIER_SYNCED, waiting, opcode, operands, a=number, b=b["generation"])
                b.update(arrived=0, generation=b["generation"] + 1, waiting=[])

    def cluster_barrier(self, warps, generation=0, release=True):
        for warp in _many(warps):
            self.by(Event.CLUSTER_ARRIVED, warp, "barrier.cluster.arrive", b=generation, c=int(release))
        for warp in _many(warps):
            self.by(Event.CLUSTER_WAITED, warp, "barrier.cluster.wait", b=generation)

    # --- copies -------------------------------------------------------------------------------------------------------

    def load(self, warp, address, size, bar, source=None, key=None, multicast=False) -> int:
        op = len(self.ops)
        self.ops[op] = {"address": address, "size": size, "bar": bar, "warp": warp}
        opcode = "cp.async.bulk.tensor" + (".multicast::cluster" if multicast else "")
        self.ops[op]["pc"] = self.pc(opcode, key=key)
        self.by(
            Event.TMA_ISSUED, warp, opcode, key=key, mask=1, op=op, a=Copy.TENSOR_LOAD, b=size, c=address, d=bar
        )  # fmt: skip
        if source is not None:
            self.by(Event.TMA_GLOBAL, warp, opcode, key=key, mask=1, op=op, a=source, b=128, c=size // 128, d=128)
        return op

    def land(self, op, cta=None, bar=None):
        """A load has written its destination."""
        o = self.ops[op]
        bar = o["bar"] if bar is None else bar
        b = self.bars[bar]
        cta = b["cta"] if cta is None else cta
        address = (cta % self.cluster) << 24 | o["address"] & 0xFFFFFF
        size, pc = o["size"], o["pc"]
        self.emit(Event.TMA_COMPLETED, cta, -1, pc, op=op, a=Copy.TENSOR_LOAD, b=size, c=address, d=bar)
        b["tx"] -= size
        self.emit(Event.MBARRIER_COMPLETED_TX, cta, -1, pc, op=op, a=bar, b=size, c=b["tx"], d=b["phase"])
        self._flip(bar)

    def store(self, warp, address, size, target=None, key=None, mask=1, kind=Copy.TENSOR_STORE) -> int:
        op = len(self.ops)
        self.ops[op] = {"address": address, "size": size}
        opcode = "cp.async.bulk.tensor.global"
        self.by(Event.TMA_ISSUED, warp, opcode, key=key, mask=mask, op=op, a=kind, b=size, c=address, d=-1)
        if target is not None:
            self.by(Event.TMA_GLOBAL, warp, opcode, key=key, mask=mask, op=op, a=target, b=128, c=size // 128, d=128)
        return op

    def bulk_commit(self, warp, mask=1):
        self.by(Event.BULK_COMMITTED, warp, "cp.async.bulk.commit_group", mask=mask, a=self.groups[warp])
        self.groups[warp] += 1

    def bulk_wait(self, warp, pending=0, read=True, mask=1):
        group = self.groups[warp] - 1 - pending
        self.by(Event.BULK_WAITED, warp, "cp.async.bulk.wait_group", mask=mask, a=group, b=int(read))

    # --- wgmma --------------------------------------------------------------------------------------------------------

    def wgmma_fence(self, warps):
        for warp in _many(warps):
            self.by(Event.WGMMA_FENCED, warp, "wgmma.fence.sync.aligned")

    def wgmma(self, warps, a, b, accumulator="d0 d1 d2 d3", fragment="", scale_d=0, n=8, key=None):
        """The four warps issue m64nNk16 bf16; ``a`` is an address, or -1 with ``fragment`` registers."""
        first = _many(warps)[0]
        op = len(self.ops)
        self.ops[op] = {}
        operand = registers(fragment) if fragment else Imm(0)
        operands = (registers(accumulator), operand, Imm(0), Imm(scale_d), Imm(1), Imm(1), Imm(0), Imm(0))
        for warp in _many(warps):
            self.by(
                Event.WGMMA_ISSUED, warp, f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16", operands, key=key,
                op=op, a=-1 if fragment else descriptor(a), b=descriptor(b), c=self.sequence[first][0],
            )  # fmt: skip
        self.sequence[first][0] += 1

    def wgmma_commit(self, warps):
        first = _many(warps)[0]
        for warp in _many(warps):
            self.by(
                Event.WGMMA_COMMITTED, warp, "wgmma.commit_group.sync.aligned",
                a=self.sequence[first][1], c=self.sequence[first][0] - 1,
            )  # fmt: skip
        self.sequence[first][1] += 1

    def wgmma_wait(self, warps, pending=0):
        first = _many(warps)[0]
        for warp in _many(warps):
            group = self.sequence[first][1] - 1 - pending
            self.by(Event.WGMMA_WAITED, warp, "wgmma.wait_group.sync.aligned", a=group)


def descriptor(address: int) -> int:
    """Return a descriptor without swizzle of a K-major operand whose core matrices follow each other (k16 of bf16)."""
    return address >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32


def _many(warps) -> list[int]:
    return [warps] if isinstance(warps, int) else list(warps)
