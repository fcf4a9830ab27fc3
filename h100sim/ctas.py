"""CTAs: which of the grid's are put on the SMs and when, what their registers hold at first, and how they end.

Slots stand in the order in which clusters take their SMs: :mod:`h100sim.placement`.
"""

from __future__ import annotations

import numpy as np

from . import state as S
from .lanes import new_node
from .memory.windows import SHARED_START
from .native import copy_bytes, entry, fill_bytes, i32, i64, inner, load_i32, u32
from .services import emit, enqueue
from .trace import Event
from .units.clusters import end_of_warp
from .units.named_barriers import release_after_exit

# Fills: what a row of the register file holds when a CTA starts.
FILLS = (
    "tid.x", "tid.y", "tid.z", "laneid", "warpid", "ctaid.x", "ctaid.y", "ctaid.z", "smid",
    "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "cluster_ctarank",
    "clusterid.x", "clusterid.y", "clusterid.z",
    "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
)  # fmt: skip
#: Fills of rows that hold the address of a shared variable (32 or 64 bits): the CTA's rank goes into bits 24 and up.
RANK, WIDE_RANK = len(FILLS), len(FILLS) + 1


_CTA_STARTED, _CTA_ENDED = int(Event.CTA_STARTED), int(Event.CTA_ENDED)
_FULL = 0xFFFFFFFF


@inner
def _fill_value(ctx, kind, cta, rank, lane):
    """Return the value of a special register that is constant for a thread. ``kind`` is an index into FILLS."""
    c = S.context(ctx)
    C = S.ctas(ctx)[cta]
    thread = rank * 32 + lane
    if kind == 0:
        return thread % c.block_x
    if kind == 1:
        return (thread // c.block_x) % c.block_y
    if kind == 2:
        return thread // (c.block_x * c.block_y)
    if kind == 3:
        return lane
    if kind == 4:
        return rank
    x = C.id % c.grid_x
    y = (C.id // c.grid_x) % c.grid_y
    z = C.id // (c.grid_x * c.grid_y)
    if kind == 5:
        return x
    if kind == 6:
        return y
    if kind == 7:
        return z
    if kind == 8:
        return C.sm
    if kind == 9:
        return x % c.cluster_x
    if kind == 10:
        return y % c.cluster_y
    if kind == 11:
        return z % c.cluster_z
    if kind == 12:
        return C.cluster_rank
    if kind == 13:
        return x // c.cluster_x
    if kind == 14:
        return y // c.cluster_y
    if kind == 15:
        return z // c.cluster_z
    bit = 1 << lane
    if kind == 16:
        return bit
    if kind == 17:
        return bit * 2 - 1
    if kind == 18:
        return bit - 1
    if kind == 19:
        return _FULL & ~(bit - 1)
    return _FULL & ~(bit * 2 - 1)


@inner
def start_cta(ctx, slot, sm, cta_id, cluster, cluster_rank, cluster_slot, time, delay):
    """Put a CTA on an SM: clear its tables, fill the special registers, queue its warps for ``delay`` cycles later."""
    c = S.context(ctx)
    C = S.ctas(ctx)[slot]
    C.id, C.state, C.sm, C.start, C.end = cta_id, 1, sm, time, -1
    C.warps, C.alive, C.pending, C.mbarriers = c.warps_per_cta, c.warps_per_cta, 0, 0
    C.cluster, C.cluster_rank, C.cluster_size, C.cluster_slot = cluster, cluster_rank, c.cluster_size, cluster_slot
    C.shared = c.shared + slot * c.shared_stride
    fill_bytes(C.shared, 0, SHARED_START)
    C.register_pool = 0
    C.cluster_generation, C.cluster_arrived, C.cluster_ready, C.cluster_opens = 0, 0, 0, 0
    fill_bytes(c.mbarrier_index + slot * (c.shared_stride // 8) * 4, -1, c.shared_stride // 2)
    for b in range(S.BARRIERS_PER_CTA):
        B = S.barriers(ctx)[slot * S.BARRIERS_PER_CTA + b]
        B.expected, B.arrived, B.generation, B.active, B.waiters = 0, 0, 0, 0, 0
    for g in range((c.warps_per_cta + 3) // 4):
        G = S.groups(ctx)[slot * ((c.warps_per_cta + 3) // 4) + g]
        G.created, G.completed, G.last_done = 0, 0, 0
        for k in range(4):
            G.issued[k], G.committed[k] = 0, 0
    emit(ctx, time, _CTA_STARTED, cta_id, -1, -1, 0, -1, sm, slot, 0, 0)
    info = S.cta_info(ctx)[cta_id]
    info.cta, info.sm, info.start, info.cluster, info.cluster_rank = cta_id, sm, time, cluster, cluster_rank
    time += delay
    threads = c.block_x * c.block_y * c.block_z
    fills = i32(c.fills, 2 * c.n_fills)
    for rank in range(c.warps_per_cta):
        w = slot * c.warps_per_cta + rank
        W = S.warps(ctx)[w]
        W.id, W.cta, W.rank, W.sm = cta_id * c.warps_per_cta + rank, slot, rank, sm
        W.scheduler = sm * 4 + rank % 4
        W.state, W.node, W.queued, W.steps = S.W_RUNNING, 0, 0, 0
        W.group = slot * ((c.warps_per_cta + 3) // 4) + rank // 4
        W.registers, W.time, W.horizon, W.issued, W.line = c.registers_per_thread, time, time, 0, -1
        W.fetching, W.held, W.granted = 0, 0, -1
        W.loop_progress, W.loops = -1, 0
        W.regs = c.registers + w * c.register_bytes
        W.ready = c.ready + w * c.ready_slots * 8
        lanes = min(32, threads - rank * 32)
        W.alive = _FULL if lanes == 32 else (1 << lanes) - 1
        copy_bytes(W.regs, c.register_template, c.template_bytes)
        fill_bytes(W.regs + c.template_bytes, 0, c.register_bytes - c.template_bytes)
        ready = i64(W.ready, c.ready_slots)
        for k in range(c.ready_slots):
            ready[k] = time
        for f in range(c.n_fills):
            row = u32(W.regs + fills[2 * f + 1], 32)
            kind = fills[2 * f]
            if kind >= RANK:
                words = 2 if kind == WIDE_RANK else 1
                row = u32(W.regs + fills[2 * f + 1], 64)
                for lane in range(32):
                    row[words * lane] |= np.uint32(cluster_rank << 24)
                continue
            for lane in range(32):
                row[lane] = _fill_value(ctx, kind, slot, rank, lane)
        nodes = S.nodes(ctx)
        for n in range(S.NODES_PER_WARP):
            nodes[w * S.NODES_PER_WARP + n].state = S.FREE
        new_node(ctx, w, -1, 0, -1, W.alive)
        fill_bytes(c.lane_groups + w * 128, 0, 128)
        W.cluster_lanes, W.cluster_owed, W.cluster_generation = 0, 0, -1
        W.served = 0
        for lane in range(32):
            fill_bytes(c.local + (w * 32 + lane) * c.local_bytes, S.POISON, c.frame_bytes)
        for lane in range(32):
            W.cp_groups[lane] = 0
        record = S.warp_info(ctx)[W.id]
        record.cta, record.rank, record.sm, record.scheduler = cta_id, rank, sm, rank % 4
        enqueue(ctx, w, time)


@inner
def start_clusters(ctx, time, delay):
    """Give free slots to the next CTAs of the grid, a whole cluster at a time; their warps start after ``delay`` cycles."""
    c = S.context(ctx)
    ctas = S.ctas(ctx)
    size = c.cluster_size
    while c.next_cta < c.n_ctas:
        found = -1
        for first in range(0, c.n_slots - size + 1, size):
            free = True
            for k in range(size):
                if ctas[first + k].state != 0:
                    free = False
                    break
            # Slots stand in the order in which clusters take their SMs (h100sim.placement).
            if free:
                found = first
                break
        if found < 0:
            return
        cluster = c.next_cta // size * c.cluster_stride
        clusters_x = c.grid_x // c.cluster_x
        clusters_y = c.grid_y // c.cluster_y
        kx = cluster % clusters_x
        ky = (cluster // clusters_x) % clusters_y
        kz = cluster // (clusters_x * clusters_y)
        for k in range(size):
            x = kx * c.cluster_x + k % c.cluster_x
            y = ky * c.cluster_y + (k // c.cluster_x) % c.cluster_y
            z = kz * c.cluster_z + k // (c.cluster_x * c.cluster_y)
            cta_id = x + c.grid_x * (y + c.grid_y * z)
            slot = found + k
            start_cta(ctx, slot, load_i32(c.slot_sms, slot), cta_id, cluster, k, found, time, delay)
        c.next_cta += size


@entry("int64", "int64")
def start(ctx, time):
    """Start a launch: give slots to its first CTAs."""
    start_clusters(ctx, time, 0)
    return 0


@inner
def end_warp(ctx, w):
    """All lanes of a warp have ended."""
    c = S.context(ctx)
    W = S.warps(ctx)[w]
    W.state = S.W_EXITED
    C = S.ctas(ctx)[W.cta]
    C.alive -= 1
    c.progress += 1
    release_after_exit(ctx, W.cta)
    end_of_warp(ctx, w)
    end_cta_if_done(ctx, W.cta)


@inner
def end_cta_if_done(ctx, slot):
    """Free the slot of a CTA whose warps have ended and that has no copy or wgmma in flight."""
    c = S.context(ctx)
    size = c.cluster_size
    first = S.ctas(ctx)[slot].cluster_slot
    for k in range(size):
        C = S.ctas(ctx)[first + k]
        if C.alive > 0 or C.pending > 0:
            return
    for k in range(size):
        C = S.ctas(ctx)[first + k]
        if C.state == 1:
            C.state, C.end = 0, c.now
            S.cta_info(ctx)[C.id].end = c.now
            c.ctas_done += 1
            emit(ctx, c.now, _CTA_ENDED, C.id, -1, -1, 0, -1, C.sm, 0, 0, 0)
    start_clusters(ctx, c.now, S.timing(ctx).cta_cycles)
