"""L2 and HBM: what an access finds there, and when its last byte has come.

An access calls :func:`begin`, then :func:`touch` for each run of bytes, which counts what must move, and :func:`arrives` (or
:func:`taken` for stores), which books it: on the way out of L2, between the halves of L2, on HBM.

Requests for one line by SMs of a GPC that come together are served together: at once for the two SMs of a TPC, at half the price for
others. Memory answers at random times within its law, from a sequence that the model's ``memory.seed`` begins.

Measured: times and rates in h100sim/devices.py, ``MemorySystem``; what L2 holds in :mod:`h100sim.memory.cache`. Assumed: a line comes
from HBM as a whole, and what is stored to a line that L2 does not hold goes to HBM at once.
"""

from __future__ import annotations

import numpy as np

from .. import state as S
from ..memory.cache import LINE_SHIFT, NEVER, home_of
from ..native import i64, inner, u64

_LINE = 1 << LINE_SHIFT
#: Pieces of memory that are late, or not, as one; those of an access beyond some are not drawn for.
_PIECE, _DRAWS = 4096, 8
#: Traffic counts for the waits of what follows for so many cycles. Assumed: about one round trip.
_RECENT_CYCLES = 1000.0
#: How much of a rate counts as in use at most: beyond, what is queued tells the wait. Assumed.
_MOST_USE = 0.8


@inner
def begin(ctx):
    """Forget what the access before has moved."""
    c = S.context(ctx)
    c.given, c.moved, c.crossed, c.missed, c.missed_across, c.there = 0, 0.0, 0, 0, 0, 0
    c.flight += 1


@inner
def touch(ctx, address, size_bytes, is_store):
    """Use global bytes: count what of them must move for it and bring their lines into L2."""
    c = S.context(ctx)
    sm = S.sms(ctx)[S.warps(ctx)[c.warp].sm]
    stamps, filled = i64(c.l2_stamps, 2 * c.l2_lines), i64(c.l2_filled, 2)
    if size_bytes <= 0:
        return
    first, last = (address - c.arena_base) >> LINE_SHIFT, (address - c.arena_base + size_bytes - 1) >> LINE_SHIFT
    for line in range(max(first, 0), min(last + 1, c.l2_lines)):
        begins = max(address - c.arena_base, line << LINE_SHIFT)
        moved = min(address - c.arena_base + size_bytes, (line + 1) << LINE_SHIFT) - begins
        home, own = home_of(line), sm.side
        if filled[own] - stamps[2 * line + own] > c.l2_half_bytes:
            if filled[home] - stamps[2 * line + home] > c.l2_half_bytes:
                c.missed += _LINE
                c.missed_across += _LINE if own != home else 0
            elif not is_store:
                c.crossed += moved
            renew(ctx, stamps, filled, line, home)
            S.asked(ctx)[line].flight = c.flight
        else:
            before = S.asked(ctx)[line].flight
            if before > 0 and c.flight - before < S.FLIGHTS:
                c.there = max(c.there, i64(c.flights, S.FLIGHTS)[before % S.FLIGHTS])
        renew(ctx, stamps, filled, line, own)
        if is_store:
            # What the other half has of the line is no longer valid.
            if own == home:
                stamps[2 * line + 1 - own] = NEVER
        else:
            c.given += moved
            c.moved += moved * share(ctx, line, sm)


@inner
def renew(ctx, stamps, filled, line, half):
    """Note that a line was used in a half. Lines that were used long before pass others in the order of use, which ages those."""
    if filled[half] - stamps[2 * line + half] > S.context(ctx).l2_half_bytes // 4:
        filled[half] += _LINE
    stamps[2 * line + half] = filled[half]


@inner
def share(ctx, line, sm):
    """Return which part of the way out of L2 a line takes, and note that an SM has asked for it: while the answer to another
    SM is on its way, both get it."""
    c, T = S.context(ctx), S.timing(ctx)
    entry = S.asked(ctx)[line]
    if c.now > entry.until:
        # The answer comes behind all that is on its way.
        entry.until, entry.tpcs = max(c.now, int(c.read_free)) + T.l2_merge_cycles, sm.tpc_bit
        return 1.0
    before = entry.tpcs
    entry.tpcs = before | sm.tpc_bit
    if before & sm.tpc_bit != 0:
        return 0.0
    if before & u64(c.gpc_tpcs, sm.gpc + 1)[sm.gpc] != 0:
        return T.l2_repeat_percent * 0.01
    return 1.0


@inner
def draw(ctx, bound):
    """Return the next number from 0 to ``bound`` - 1 of memory's own random sequence."""
    c = S.context(ctx)
    c.memory_seed = c.memory_seed * 6364136223846793005 + 1442695040888963407
    return ((c.memory_seed >> 33) & 0x7FFFFFFF) % max(bound, 1)


@inner
def queued(ctx, cycles, use):
    """Return a random wait, as in a queue of random arrivals: ``cycles`` on average where half of a rate is in use."""
    use = min(use, _MOST_USE)
    return draw(ctx, int(2 * cycles * use / (1.0 - use)) + 1)


@inner
def wait_behind(ctx, traffic, rate):
    """Return a random wait behind others where so many bytes per cycle have been moved of late and ``rate`` could be."""
    return queued(ctx, S.timing(ctx).load_wait_cycles, traffic / rate)


@inner
def faded(traffic, since, now, size_bytes):
    """Return bytes per cycle of late, where ``traffic`` was known at a time and more bytes come now."""
    return traffic * np.exp(-max(0.0, now - since) / _RECENT_CYCLES) + size_bytes / _RECENT_CYCLES


@inner
def wait_in_l2(ctx, ready):
    """Note what an access gets from L2; return its random wait behind others on the way to all SMs."""
    c, T = S.context(ctx), S.timing(ctx)
    c.given_traffic = faded(c.given_traffic, c.given_traffic_at, float(ready), c.given)
    c.given_traffic_at = max(c.given_traffic_at, float(ready))
    return queued(ctx, T.l2_wait_cycles, c.given_traffic / T.l2_shared_bytes_per_cycle)


@inner
def arrives(ctx, ready, end):
    """Book what an access that is ``ready`` moves; return when its last byte has come that else would come at ``end``."""
    c, T = S.context(ctx), S.timing(ctx)
    # Every part queues from the time of the request on: what waits for one of them leaves the others free.
    c.read_free = max(float(ready), c.read_free) + c.moved / T.l2_bytes_per_cycle
    c.given_free = max(float(ready), c.given_free) + c.given / T.l2_shared_bytes_per_cycle
    end = max(end + wait_in_l2(ctx, ready), int(c.read_free), int(c.given_free), c.there)
    across = c.crossed + c.missed_across
    if across > 0:
        c.cross_free = max(float(ready), c.cross_free) + across / T.cross_bytes_per_cycle
        c.cross_traffic = faded(c.cross_traffic, c.cross_traffic_at, float(ready), across)
        c.cross_traffic_at = max(c.cross_traffic_at, float(ready))
        end = max(end, int(c.cross_free)) + T.l2_cross_cycles
    if c.missed > 0:
        end = from_hbm(ctx, ready, end)
    elif across > 0:
        end += wait_behind(ctx, c.cross_traffic, T.cross_bytes_per_cycle)
    i64(c.flights, S.FLIGHTS)[c.flight % S.FLIGHTS] = end if across + c.missed > 0 else 0
    return end


@inner
def from_hbm(ctx, ready, end):
    """Book what HBM has to answer; return when it has."""
    c, T = S.context(ctx), S.timing(ctx)
    to_hbm(ctx, ready)
    c.hbm_traffic = faded(c.hbm_traffic, c.hbm_traffic_at, float(ready), c.missed)
    c.hbm_traffic_at = max(c.hbm_traffic_at, float(ready))
    late = 0
    for _ in range(min((c.missed + _PIECE - 1) // _PIECE, _DRAWS)):
        if draw(ctx, 100) < T.hbm_late_percent:
            late = max(late, T.hbm_late_cycles + draw(ctx, T.hbm_late_spread))
    return max(end, int(c.hbm_free)) + T.hbm_extra_latency + late + wait_behind(ctx, c.hbm_traffic, T.hbm_bytes_per_cycle)


@inner
def to_hbm(ctx, ready):
    """Book HBM for what an access did not find in L2."""
    c, T = S.context(ctx), S.timing(ctx)
    c.hbm_fetched += c.missed
    c.hbm_free = max(float(ready), c.hbm_free) + c.missed / T.hbm_bytes_per_cycle


@inner
def taken(ctx, ready, size_bytes):
    """Book L2 for bytes that are stored, and HBM for lines that L2 did not hold; return when L2 has taken them."""
    c, T = S.context(ctx), S.timing(ctx)
    c.write_free = max(float(ready), c.write_free) + size_bytes / T.l2_write_bytes_per_cycle
    if c.missed > 0:
        to_hbm(ctx, ready)
    return int(c.write_free)
