"""Fences: memory order and proxies. They move no data here; the checks read them from the trace.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: membar, fence". Assumed: a fixed cost, see
h100sim/devices.py ``Barriers.fence_cycles``.
"""

from __future__ import annotations

from .. import state as S
from ..isa.machine import Environment, MachineOp, current, machine_instruction, refuse
from ..ptx.module import Instruction
from ..services import emit_here
from ..trace import Event, Fence

_FENCED = int(Event.FENCED)


def fence(regs, mask, ops, ctx):
    """imm0: kind (trace.Fence), imm1: 1 if it costs time."""
    ins = current(ctx)
    emit_here(ctx, _FENCED, -1, ins.imm0, 0, 0, 0)
    if ins.imm1:
        # A fence waits until the warp's stores have gone through the shared-memory port.
        c = S.context(ctx)
        c.issue = S.timing(ctx).fence_cycles + max(0, int(S.sms(ctx)[S.warps(ctx)[c.warp].sm].port_free) - c.now)
    return S.S_NEXT


def kind_of(instruction: Instruction, environment: Environment) -> Fence:
    """Return which fence an instruction is."""
    parts = instruction.opcode.replace("::", ".").split(".")
    if "proxy" in parts:
        if "alias" in parts:
            return Fence.PROXY_ALIAS
        if "tensormap" in parts:
            return Fence.PROXY_TENSORMAP_RELEASE if "release" in parts else Fence.PROXY_TENSORMAP_ACQUIRE
        if "async" in parts:
            if "shared" in parts:
                return Fence.PROXY_ASYNC_SHARED
            return Fence.PROXY_ASYNC_GLOBAL if "global" in parts else Fence.PROXY_ASYNC
        raise refuse(instruction, f"{instruction.opcode} proxy must be alias, async or tensormap", environment)
    if "sync_restrict" in parts and ("acquire" in parts) == ("cta" in parts):
        legal = "acquire of shared::cluster or a release of shared::cta"
        raise refuse(instruction, f"{instruction.opcode} must be an {legal}", environment)
    if "mbarrier_init" in parts:
        if parts != ["fence", "mbarrier_init", "release", "cluster"]:
            raise refuse(instruction, f"fence.mbarrier_init must be .release.cluster, not {instruction.opcode}", environment)
        return Fence.MBARRIER_INIT
    if "sc" in parts or instruction.base == "membar":
        return Fence.SC
    for scope, found in (
        ("cta", Fence.ACQ_REL_CTA),
        ("cluster", Fence.ACQ_REL_CLUSTER),
        ("gpu", Fence.ACQ_REL_GPU),
        ("sys", Fence.ACQ_REL_SYS),
    ):
        if scope in parts:
            return found
    raise refuse(instruction, f"{instruction.opcode} must name a scope", environment)


@machine_instruction("fence", "membar")
def lower_fence(instruction: Instruction, environment: Environment) -> MachineOp:
    kind = kind_of(instruction, environment)
    return MachineOp(fence, (), (), (int(kind), int(kind != Fence.MBARRIER_INIT)))
