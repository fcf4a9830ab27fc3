"""The way of a warp's loads and stores out of its SM: L1, the way to L2, and the network of the cluster.

Lanes that follow each other in one line of 128 bytes are served together. L1 holds sectors of 32 bytes, those used last, as many as
shared memory leaves room for; loads that do not ask for the newest value find them there. Stores go through it.

Measured: numbers in h100sim/devices.py, ``MemorySystem`` and ``ClusterNetwork``. Assumed: L1 replaces what was used least recently, and
loses nothing before the launch ends.
"""

from __future__ import annotations

from .. import state as S
from ..layouts.banks import SCRATCH_WORDS, packets
from ..memory.cache import LINE_SHIFT, home_of
from ..native import i32, inner
from .memory_system import arrives, begin, taken, touch
from .shared_port import reserve

_SECTOR_SHIFT = 5
_SECTOR = 1 << _SECTOR_SHIFT


@inner
def in_l1(ctx, address):
    """Is the sector at a global address in the SM's L1? It is afterwards."""
    c = S.context(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    sector = ((address - c.arena_base) >> _SECTOR_SHIFT) + 1
    entry = S.l1_sectors(ctx)[sm.l1 + sector % S.L1_PLACES]
    found = entry.sector == sector and sm.l1_filled - entry.stamp < c.l1_held
    if not found:
        entry.sector = sector
        sm.l1_filled += 1
    entry.stamp = sm.l1_filled
    return found


@inner
def load_out(ctx, addresses, size, cached):
    """Book a load of ``size`` bytes for each lane whose address (int64 (32,)) is not negative, which may find them in L1 if
    ``cached``, and hold the warp where the way in is full; return when the last byte has come."""
    c, T = S.context(ctx), S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    begin(ctx)
    sectors, fetched, last, far, lines, line = 0, 0, -1, False, 0, -1
    run, run_bytes = 0, 0
    for lane in range(32):
        if addresses[lane] < 0:
            continue
        for sector in range(addresses[lane] >> _SECTOR_SHIFT, ((addresses[lane] + size - 1) >> _SECTOR_SHIFT) + 1):
            if sector == last:
                continue
            last = sector
            sectors += 1
            if sector >> (LINE_SHIFT - _SECTOR_SHIFT) != line:
                line = sector >> (LINE_SHIFT - _SECTOR_SHIFT)
                lines += 1
            address = sector << _SECTOR_SHIFT
            if cached and in_l1(ctx, address):
                continue
            fetched += 1
            # Sectors of a line that follow each other are one request.
            if address != run + run_bytes or address >> LINE_SHIFT != run >> LINE_SHIFT:
                touch(ctx, run, run_bytes, False)
                run, run_bytes = address, 0
                if home_of((address - c.arena_base) >> LINE_SHIFT) != sm.near:
                    far = True
            run_bytes += _SECTOR
    touch(ctx, run, run_bytes, False)
    # L1 and shared memory are one memory with one port.
    begins, ends = reserve(ctx, sm, (sectors + 3) // 4)
    c.issue = max(T.shared_wide_issue_cycles if size > 8 else T.shared_issue_cycles, int(ends) - c.now - T.shared_queue_cycles)
    sm.load_free = max(begins, sm.load_free) + max(lines, fetched * _SECTOR / T.load_bytes_per_cycle)
    if fetched == 0:
        return max(int(ends), int(sm.load_free)) + T.l1_latency - 1
    latency = T.l2_latency + (T.l2_far_cycles if far else 0)
    return arrives(ctx, c.now, int(max(begins, sm.load_free))) + latency


@inner
def store_out(ctx, addresses, size, is_repeated):
    """Book a store of ``size`` bytes for each lane whose address (int64 (32,)) is not negative. A full queue in front of the way out
    holds the warp, and so do bytes of its SM that L2 has not taken yet. In a loop, which needs the registers again, the queues of the
    schedulers do not help."""
    c, T = S.context(ctx), S.timing(ctx)
    begin(ctx)
    whole, parts, sector, written, last = 0, 0, -1, 0, -1
    for lane in range(32):
        if addresses[lane] < 0 or addresses[lane] == last:
            continue
        last = addresses[lane]
        if last >> _SECTOR_SHIFT != sector:
            whole += written >= _SECTOR
            parts += sector >= 0 and written < _SECTOR
            sector, written = last >> _SECTOR_SHIFT, 0
            touch(ctx, sector << _SECTOR_SHIFT, _SECTOR, True)
        written += size
    whole += written >= _SECTOR
    parts += sector >= 0 and written < _SECTOR
    sectors = whole + parts
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    busy = whole * T.store_sector_cycles + parts * T.store_part_cycles
    sm.store_free = max(c.now, sm.store_free) + busy
    accepted = taken(ctx, c.now, float(sectors * _SECTOR))
    if sm.store_marked >= T.store_queue_bytes:
        sm.store_taken_before, sm.store_taken, sm.store_marked = sm.store_taken, accepted, 0
    sm.store_marked += sectors * _SECTOR
    queued = busy * T.store_queue // (2 if size > 8 or parts > 0 else 1)
    if is_repeated == 0:
        queued += busy * T.store_scheduler_queue
    least = T.shared_wide_issue_cycles if size > 8 else T.shared_issue_cycles
    c.issue = max(least, sm.store_free - c.now - queued, sm.store_taken_before - c.now)


@inner
def lines_out(ctx, address, step, count, size_bytes):
    """Book a load of ``count`` runs of bytes ``step`` apart by a warp; return when the last byte has come."""
    c, T = S.context(ctx), S.timing(ctx)
    begin(ctx)
    for k in range(count):
        touch(ctx, address + k * step, size_bytes, False)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    sm.load_free = max(float(c.now), sm.load_free) + count * size_bytes / T.load_bytes_per_cycle
    return arrives(ctx, c.now, int(sm.load_free)) + T.l2_latency + T.l2_far_cycles // 2


@inner
def is_elsewhere(ctx, address):
    """Does a shared address lie in another CTA of the cluster?"""
    C = S.ctas(ctx)[S.warps(ctx)[S.context(ctx).warp].cta]
    return C.cluster_size > 1 and (address >> 24) & 0xFF != C.cluster_rank


@inner
def network_time(ctx, addresses, size):
    """Charge the network of the cluster for stores of ``size`` bytes a lane; return when the last of them has left."""
    c, T = S.context(ctx), S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    count = packets(addresses, size, i32(c.scratch, SCRATCH_WORDS))
    sm.network_free = max(float(c.now), sm.network_free) + count / T.cluster_packets_per_cycle
    left = int(sm.network_free)
    # A full queue in front of the network holds the warp, as one in front of the port does.
    c.issue = max(c.issue, left - c.now - T.cluster_queue_cycles)
    return left


@inner
def network_load(ctx, addresses, size):
    """Charge the network of the cluster for loads of ``size`` bytes a lane; return when the last of them has come."""
    c, T = S.context(ctx), S.timing(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    lanes = 0
    for lane in range(32):
        lanes += 1 if addresses[lane] >= 0 else 0
    sm.network_free = max(float(c.now), sm.network_free) + lanes * size / T.cluster_load_bytes_per_cycle
    c.issue = max(c.issue, int(sm.network_free) - c.now - T.cluster_queue_cycles)
    return int(sm.network_free) + T.cluster_load_latency
