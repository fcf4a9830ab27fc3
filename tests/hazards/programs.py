"""Builds small PTX programs of roles: the common skeleton, and one function per step, each on its own PTX line.

A program is a list of roles; a role is a range of threads and its steps, unrolled. Shared memory is one buffer of 32
KiB whose tiles and mbarriers lie at fixed offsets; copies are one-dimensional bulk copies, so no tensor map is
needed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import h100sim
from h100sim.checks import Hazard
from h100sim.errors import KernelError

SMEM_BYTES = 32_768
TILE = 2048
#: Offset of the first mbarrier; tiles lie below.
BARRIERS = 30_720

_HEADER = """\
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel(.param .u64 source, .param .u64 target)
{
    .reg .pred %p<64>;
    .reg .b32 %tid, %in_role, %smem, %mine, %r<512>;
    .reg .b64 %source, %target, %mine_in, %mine_out, %map, %rd<64>;
    .reg .f32 %d<4>, %e<8>, %f<8>;
    .reg .b32 %a<4>, %b<4>;
    mov.u32 %tid, %tid.x;
    mov.u32 %smem, smem;
    ld.param.u64 %source, [source];
    ld.param.u64 %target, [target];
"""


@dataclass(frozen=True)
class Role:
    """Threads ``first`` to ``last`` of every CTA, or of the CTA with rank ``rank``, and what they do."""

    first: int
    last: int
    steps: tuple[str, ...]
    rank: int = -1


def role(first: int, last: int, *steps: str | list[str], rank: int = -1) -> Role:
    """Return a role; steps may be nested lists."""
    return Role(first, last, tuple(_flat(steps)), rank)


def _flat(steps) -> list[str]:
    return [s for step in steps for s in ([step] if isinstance(step, str) else _flat(step))]


def build(*roles: Role, start: list = (), end: list = ()) -> str:
    """Return PTX in which all threads do ``start``, then the roles their steps, then all that come back ``end``."""
    labels = itertools.count()
    text = _HEADER + _place(0) + _body(_flat(start), labels)
    for number, r in enumerate(roles):
        text += f"    setp.lt.u32 %p60, %tid, {r.first};\n    setp.gt.u32 %p61, %tid, {r.last};\n"
        text += "    or.pred %p62, %p60, %p61;\n"
        if r.rank >= 0:
            text += f"    mov.u32 %r500, %cluster_ctarank;\n    setp.ne.u32 %p61, %r500, {r.rank};\n"
            text += "    or.pred %p62, %p62, %p61;\n"
        text += f"    @%p62 bra ROLE{number};\n" + _place(r.first) + _body(r.steps, labels) + f"ROLE{number}:\n"
    return text + _body(_flat(end), labels) + "    ret;\n}\n"


def _place(first: int) -> str:
    """Set the thread's number in its role and its own 16 bytes of shared and global memory."""
    return (
        f"    sub.u32 %in_role, %tid, {first};\n    shl.b32 %mine, %in_role, 4;\n    cvt.u64.u32 %mine_in, %mine;\n"
        "    add.u64 %mine_out, %target, %mine_in;\n    add.u64 %mine_in, %source, %mine_in;\n"
        "    add.u32 %mine, %mine, %smem;\n"
    )


def _body(steps, labels) -> str:
    return "".join("    " + step.replace("LABEL", f"L{next(labels)}_") + "\n" for step in steps)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its error (None if it came to an end), the hazards and warnings until then, the target array."""

    error: KernelError | None
    hazards: list[Hazard]
    warnings: list[Hazard]
    target: np.ndarray
    cycles: int

    @property
    def found(self) -> list[tuple[str, str]]:
        """Return (kind, message) of every hazard."""
        return [(h.kind, h.message) for h in self.hazards]

    @property
    def kinds(self) -> set[str]:
        return {h.kind for h in self.hazards}

    @property
    def is_clean(self) -> bool:
        return self.error is None and not self.hazards


def run(ptx: str, threads: int, *, grid: int = 1, cluster: int = 1, checks: str = "on", schedule: int = 0) -> Outcome:
    """Run a program on 64 KiB of source and target."""
    function = h100sim.RawModule(code=ptx).get_function("kernel")
    function.max_dynamic_shared_size_bytes = SMEM_BYTES
    source, target = np.arange(1 << 14, dtype=np.uint32), np.zeros(1 << 14, np.uint32)
    session = function.prepare(
        (grid, 1, 1), (threads, 1, 1), (source, target), shared_mem=SMEM_BYTES, cluster=(cluster, 1, 1), checks=checks,
        schedule=schedule,
    )  # fmt: skip
    error = None
    try:
        session.machine.start()
        session.machine.run()
    except KernelError as stopped:
        error = stopped
    hazards, warnings = session.findings()
    session.write_back()
    return Outcome(error, hazards, warnings, target, session.machine.cycles)


# --- steps: mbarriers -------------------------------------------------------------------------------------------------


def at(bar: int) -> str:
    return f"[%smem+{BARRIERS + 8 * bar}]"


def init(bar: int, count: int) -> str:
    return f"mbarrier.init.shared::cta.b64 {at(bar)}, {count};"


def init_by_thread_0(*counts: int) -> list[str]:
    """Thread 0 initialises mbarriers 0, 1, ...; no barrier follows."""
    return ["setp.eq.u32 %p1, %tid, 0;", *(f"@%p1 {init(k, count)}" for k, count in enumerate(counts))]


def inits(*counts: int) -> list[str]:
    """Thread 0 initialises mbarriers 0, 1, ... with these counts, then the CTA meets."""
    return [*init_by_thread_0(*counts), "bar.sync 0;"]


def arrive(bar: int) -> str:
    return f"mbarrier.arrive.shared::cta.b64 _, {at(bar)};"


def arrive_tx(bar: int, size: int = TILE) -> str:
    return f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {at(bar)}, {size};"


def expect(bar: int, size: int = TILE) -> str:
    return f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {at(bar)}, {size};"


def wait(bar: int, parity: int) -> str:
    return f"LABEL: mbarrier.try_wait.parity.shared::cta.b64 %p2, {at(bar)}, {parity}; @!%p2 bra LABEL;"


def test(bar: int, parity: int) -> str:
    """Test once and go on whatever the answer."""
    return f"mbarrier.test_wait.parity.shared::cta.b64 %p2, {at(bar)}, {parity};"


# --- steps: memory ----------------------------------------------------------------------------------------------------


def write(offset: int) -> str:
    """Every thread of the role writes its 16 bytes of a tile."""
    return f"st.shared.v4.u32 [%mine+{offset}], {{%tid, %tid, %tid, %tid}};"


def read(offset: int) -> str:
    return f"ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%mine+{offset}];"


def fence_async() -> str:
    return "fence.proxy.async.shared::cta;"


def sync(number: int = 0, threads: int = 0) -> str:
    return f"bar.sync {number}, {threads};" if threads else f"bar.sync {number};"


def bar_arrive(number: int, threads: int) -> str:
    return f"bar.arrive {number}, {threads};"


def work(cycles: int) -> str:
    """Let some time pass."""
    return f"nanosleep.u32 {cycles};"


def by_lane_0(step: str) -> list[str]:
    """One step in the first lane of each warp."""
    return ["and.b32 %r5, %tid, 31;", "setp.eq.u32 %p3, %r5, 0;", f"@%p3 {step}"]


def by_first(step: str) -> list[str]:
    """One step in the first thread of the role."""
    return ["setp.eq.u32 %p3, %in_role, 0;", f"@%p3 {step}"]


# --- steps: copies ----------------------------------------------------------------------------------------------------


def load(offset: int, bar: int, size: int = TILE) -> list[str]:
    return [
        f"add.u32 %r6, %smem, {offset};",
        f"add.u32 %r7, %smem, {BARRIERS + 8 * bar};",
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%source], {size}, [%r7];",
    ]


def store(offset: int, size: int = TILE) -> list[str]:
    return [
        f"add.u32 %r6, %smem, {offset};",
        f"cp.async.bulk.global.shared::cta.bulk_group [%target], [%r6], {size};",
    ]


def bulk_commit() -> str:
    return "cp.async.bulk.commit_group;"


def bulk_wait(pending: int = 0, read: bool = True) -> str:
    return f"cp.async.bulk.wait_group{'.read' if read else ''} {pending};"


# --- steps: wgmma -----------------------------------------------------------------------------------------------------


def wgmma_fence() -> str:
    return "wgmma.fence.sync.aligned;"


def commit() -> str:
    return "wgmma.commit_group.sync.aligned;"


def wait_group(pending: int = 0) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def wgmma(a: int, b: int, d: str = "d", scale_d: int = 0) -> list[str]:
    """m64n8k16 of bf16 without swizzle: A (2,048 bytes) and B (256 bytes) at offsets of shared memory."""
    return [
        *_descriptor("%rd1", a),
        *_descriptor("%rd2", b),
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%{d}0, %{d}1, %{d}2, %{d}3}}, %rd1, %rd2, {scale_d}, 1, 1, 0, 0;",
    ]


def wgmma_of_registers(a: str, b: int, d: str = "d") -> list[str]:
    return [
        *_descriptor("%rd2", b),
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        f"{{%{d}0, %{d}1, %{d}2, %{d}3}}, {{%{a}0, %{a}1, %{a}2, %{a}3}}, %rd2, 0, 1, 1, 0;",
    ]


def _descriptor(name: str, offset: int) -> list[str]:
    constant = (128 >> 4) << 16 | (256 >> 4) << 32
    return [
        f"add.u32 %r8, %smem, {offset};",
        "shr.u32 %r8, %r8, 4;",
        f"cvt.u64.u32 {name}, %r8;",
        f"or.b64 {name}, {name}, {constant};",
    ]


# --- the usual ring of two stages: mbarriers 0, 1 are full, 2, 3 are empty
# ---------------------------------------------


def producer(steps: int, first_parity: int = 1) -> list[str]:
    """Wait for an empty stage, arm its full barrier, load it."""
    found: list[str] = []
    for k in range(steps):
        stage, turn = k % 2, k // 2 & 1
        found += [wait(2 + stage, first_parity ^ turn), arrive_tx(stage), *load(stage * TILE, stage)]
    return found


def consumer(steps: int, release=None, use=None) -> list[str]:
    """Wait for a full stage, use it, release it; the defaults read it and let one thread arrive after all have read."""
    found: list[str] = []
    for k in range(steps):
        stage = k % 2
        used = use(stage * TILE) if use else [read(stage * TILE)]
        released = release(2 + stage) if release else [sync(1, 128), *by_first(arrive(2 + stage))]
        found += [wait(stage, k // 2 & 1), *used, *released]
    return found


def multiply(offset: int) -> list[str]:
    """One wgmma on a stage, waited for."""
    return [wgmma_fence(), *wgmma(offset, offset), commit(), wait_group(0)]


def ring(produce: list[str], consume: list[str], counts=(1, 1, 1, 1)) -> str:
    """Return a program of thread 0 and one consumer warpgroup (threads 128 to 255)."""
    return build(role(0, 0, produce), role(128, 255, consume), start=inits(*counts))


def by_thread(number: int, *steps: str | list[str]) -> list[str]:
    """The copy instructions among steps by one thread of the CTA only; address arithmetic by all."""
    return [
        f"setp.eq.u32 %p4, %tid, {number};",
        *(f"@%p4 {s}" if s.startswith("cp.async.bulk") else s for s in _flat(steps)),
    ]
