"""The barrier of a cluster: barrier.cluster.arrive and barrier.cluster.wait.

A warp arrives once all of its lanes that have not ended have executed an arrive; the barrier completes when every
warp of every CTA of the cluster has arrived or ended. A second arrive before the generation is complete is an error.
Arrivals are counted on the first CTA of the cluster. Without clusters a CTA is a cluster of one.

Spec: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: barrier.cluster". Measured: the release
time in h100sim/devices.py, ``Barriers``. Assumed: a wait without an arrive before it (undefined) never passes.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..isa.machine import Environment, MachineOp, current, machine_instruction, refuse
from ..native import inner
from ..ptx.module import Instruction
from ..services import block, emit_here, fail, wake_waiters
from ..trace import Event, Wait

_ARRIVED, _WAITED = int(Event.CLUSTER_ARRIVED), int(Event.CLUSTER_WAITED)
_WAIT = int(Wait.CLUSTER)


@inner
def complete_if_all_arrived(ctx, cta):
    """Begin the next generation if no warp of the cluster is missing, and let the waiting warps go on."""
    c, ctas = S.context(ctx), S.ctas(ctx)
    first = ctas[cta].cluster_slot
    alive = 0
    for k in range(c.cluster_size):
        alive += ctas[first + k].alive
    leader = ctas[first]
    if leader.cluster_arrived == 0 or leader.cluster_arrived < alive:
        return
    leader.cluster_generation += 1
    leader.cluster_arrived = 0
    leader.cluster_opens = max(c.now, leader.cluster_ready) + S.timing(ctx).cluster_release_cycles
    c.progress += 1
    for k in range(c.cluster_size):
        wake_waiters(ctx, first + k, _WAIT, ctas[first].id, leader.cluster_opens, 0)


@inner
def count_if_whole(ctx, w):
    """Count a warp once all of its lanes that have not ended have arrived; return whether it was."""
    W = S.warps(ctx)[w]
    if W.cluster_lanes == 0 or W.cluster_lanes & W.alive != W.alive:
        return False
    leader = S.ctas(ctx)[S.ctas(ctx)[W.cta].cluster_slot]
    W.cluster_lanes = 0
    W.cluster_owed = W.alive
    W.cluster_generation = leader.cluster_generation
    leader.cluster_arrived += 1
    return True


@inner
def end_of_lanes(ctx, w):
    """Lanes of a warp have ended: those that are left may be all that the cluster waited for."""
    if S.warps(ctx)[w].alive != 0 and count_if_whole(ctx, w):
        complete_if_all_arrived(ctx, S.warps(ctx)[w].cta)


@inner
def end_of_warp(ctx, w):
    """A warp has ended: an arrival of its own no longer counts, and the others no longer wait for it."""
    W = S.warps(ctx)[w]
    leader = S.ctas(ctx)[S.ctas(ctx)[W.cta].cluster_slot]
    if W.cluster_generation == leader.cluster_generation:
        leader.cluster_arrived -= 1
    complete_if_all_arrived(ctx, W.cta)


def arrive(regs, mask, ops, ctx):
    """imm0: 1 release, 0 relaxed."""
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    leader = S.ctas(ctx)[S.ctas(ctx)[W.cta].cluster_slot]
    if (W.cluster_lanes | W.cluster_owed) & mask != 0 or W.cluster_generation == leader.cluster_generation:
        return fail(ctx, faults.CLUSTER_TWICE, leader.cluster_generation, 0, 0)
    W.cluster_lanes |= mask
    c.progress += 1
    T = S.timing(ctx)
    c.issue = T.cluster_arrive_cycles
    if current(ctx).imm0 == 1:
        # What the warp has written is to be seen first: stores on their way out of the SM hold the arrival.
        c.issue = T.cluster_arrive_release_cycles + max(0, S.sms(ctx)[W.sm].store_free - c.now)
    leader.cluster_ready = max(leader.cluster_ready, c.now + c.issue)
    emit_here(ctx, _ARRIVED, -1, 0, leader.cluster_generation, current(ctx).imm0, 0)
    if count_if_whole(ctx, c.warp):
        complete_if_all_arrived(ctx, W.cta)
    return S.S_NEXT


def wait(regs, mask, ops, ctx):
    c = S.context(ctx)
    W = S.warps(ctx)[c.warp]
    leader = S.ctas(ctx)[S.ctas(ctx)[W.cta].cluster_slot]
    generation = W.cluster_generation
    if W.cluster_lanes & mask != 0 or generation < 0 or generation == leader.cluster_generation:
        return block(ctx, _WAIT, leader.id, 0, leader.cluster_generation)
    W.cluster_owed &= ~mask
    # The generation is complete; the news of it may still be under way.
    c.issue = max(1, leader.cluster_opens - c.now)
    emit_here(ctx, _WAITED, -1, 0, generation, 0, 0)
    return S.S_NEXT


@machine_instruction("barrier.cluster.arrive")
def lower_arrive(instruction: Instruction, environment: Environment) -> MachineOp:
    if instruction.has("acquire"):
        raise refuse(instruction, f"{instruction.opcode} semantics must be .release or .relaxed, not .acquire", environment)
    return MachineOp(arrive, (), (), (int(not instruction.has("relaxed")),))


@machine_instruction("barrier.cluster.wait")
def lower_wait(instruction: Instruction, environment: Environment) -> MachineOp:
    if instruction.has("release") or instruction.has("relaxed"):
        raise refuse(instruction, f"{instruction.opcode} semantics must be .acquire", environment)
    return MachineOp(wait)
