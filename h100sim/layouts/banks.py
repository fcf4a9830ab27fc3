"""Bank conflicts: how many wavefronts (cycles of its port) an access of a warp to shared memory takes.

Shared memory has 32 banks of 4 bytes. In a wavefront each bank serves one word, to every lane that wants a part of it.
An access is served in groups of lanes, one group after the other: all 32 lanes for at most 4 bytes each, 16 for 8, 8
for 16. A group takes as many wavefronts as the fullest bank has words, and one even if none of its lanes takes part.

Loads of 8 and 16 bytes are served in half as many groups if every lane n that takes part has the address of lane n^1,
or every lane that of lane n^2, where that one takes part. Stores never are. ldmatrix and stmatrix take the eight rows
of each matrix as a group.

Measured: validate/silicon/shared_wavefronts.json, 18 accesses with 73 to 78 patterns of addresses each; 16-byte loads
take up to 0.5 cycles more than wavefronts, which is not modelled. Assumed: atomics count as loads; the atomic units'
own time is not modelled.

Stores to the shared memory of another CTA (st.async, red.async) go through the network of the cluster instead, in
packets of up to 32 bytes: see :func:`packets`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from h100sim.errors import UsageError
from h100sim.native import jit

#: How lanes are grouped.
LOAD, STORE, MATRIX = 0, 1, 2
KINDS = {"load": LOAD, "store": STORE, "matrix": MATRIX}

#: Size of the scratch table of :func:`count`, int32.
SCRATCH_WORDS = 32 * 33


@jit
def lanes_together(addresses, width_bytes, kind):
    """Return how many lanes are served together: 32, 16 or 8; for compiled code.

    ``addresses``: int64 (32,), the shared byte address of each lane, -1 for one that takes no part.
    """
    if width_bytes <= 4:
        return 32
    lanes = 128 // width_bytes
    if kind == LOAD:
        for bit in (1, 2):
            is_shared = True
            for lane in range(32):
                own, other = addresses[lane], addresses[lane ^ bit]
                if own >= 0 and other >= 0 and own != other:
                    is_shared = False
                    break
            if is_shared:
                return 2 * lanes
    return lanes


@jit
def count(addresses, lanes, width_bytes, kind, scratch):
    """Return (wavefronts, groups) of an access by the first ``lanes`` lanes; for compiled code.

    Without bank conflicts there is a wavefront for each group. ``scratch``: int32 (SCRATCH_WORDS,).
    """
    together = lanes_together(addresses, width_bytes, kind)
    words_per_lane = max(width_bytes >> 2, 1)
    total, groups = 0, 0
    for first in range(0, lanes, together):
        for bank in range(32):
            scratch[bank * 33] = 0
        worst = 1
        for lane in range(first, first + together):
            if addresses[lane] < 0:
                continue
            for j in range(words_per_lane):
                word = (addresses[lane] >> 2) + j
                base = (word & 31) * 33
                known = False
                for m in range(scratch[base]):
                    if scratch[base + 1 + m] == np.int32(word):
                        known = True
                        break
                if not known:
                    scratch[base] += 1
                    scratch[base + scratch[base]] = word
                    worst = max(worst, scratch[base])
        total += worst
        groups += 1
    return total, groups


@jit
def packets(addresses, width_bytes, scratch):
    """Return the packets in which a store of a warp crosses the network of a cluster; for compiled code.

    ``addresses`` as above, ``width_bytes`` 4, 8 or 16. Lanes with the same address take turns. In each turn an aligned
    32 bytes that is written entirely is a packet, and otherwise each 16 bytes of which a part is. Two packets for the
    same 16 bytes take as long as four.
    Measured: validate/silicon/shared_wavefronts.json, ``st.async``: 1.571 cycles a packet; half of the patterns within
    0.2 %, four of five within 8 %, all with more than one lane within 31 %. ``scratch``: int32 (SCRATCH_WORDS,).
    """
    turns, per_chunk = scratch[:32], scratch[32:64]
    for lane in range(32):
        turns[lane] = per_chunk[lane] = 0
        for other in range(lane):
            if addresses[other] == addresses[lane]:
                turns[lane] += 1
    total, most = 0, 0
    for lane in range(32):
        if addresses[lane] < 0:
            continue
        first_of_chunk, first_of_sector, home, words = True, True, lane, 0
        for other in range(32):
            if addresses[other] < 0 or addresses[other] >> 5 != addresses[lane] >> 5:
                continue
            is_same_chunk = addresses[other] >> 4 == addresses[lane] >> 4
            if is_same_chunk:
                home = min(home, other)
            if turns[other] == turns[lane]:
                first_of_sector = first_of_sector and other >= lane
                first_of_chunk = first_of_chunk and (other >= lane or not is_same_chunk)
                words |= ((1 << (width_bytes >> 2)) - 1) << (addresses[other] >> 2 & 7)
        if first_of_sector:
            total += 1 if words == 0xFF else ((words & 0xF) != 0) + ((words >> 4) != 0)
        if first_of_chunk:
            per_chunk[home] += 1
            most = max(most, per_chunk[home])
    return max(total, 2 * most)


def wavefronts(addresses: Sequence[int], width_bytes: int, kind: str = "load") -> tuple[int, int]:
    """Return how many wavefronts an access takes, and how many without bank conflicts.

    ``addresses``: the shared byte address of each lane, -1 for one that takes no part, 32 or fewer (for ldmatrix and
    stmatrix one for each row); ``width_bytes``: what each lane accesses; ``kind``: load, store or matrix.
    UsageError for another width or kind, or an address that is not a multiple of the width.
    """
    lanes, given = _checked(addresses, width_bytes, kind)
    total, groups = count(lanes, _served(given, kind), width_bytes, KINDS[kind], np.empty(SCRATCH_WORDS, np.int32))
    return int(total), int(groups)


def banks(addresses: Sequence[int], width_bytes: int, kind: str = "load") -> list[dict[int, dict[int, list[int]]]]:
    """Return, for each group of lanes served together, bank -> 4-byte word -> lanes. Arguments as in :func:`wavefronts`."""
    lanes, given = _checked(addresses, width_bytes, kind)
    together = int(lanes_together(lanes, width_bytes, KINDS[kind]))
    groups: list[dict[int, dict[int, list[int]]]] = []
    for first in range(0, _served(given, kind), together):
        found: dict[int, dict[int, list[int]]] = {}
        for lane in range(first, first + together):
            address = int(lanes[lane])
            for word in range(address // 4, (address + width_bytes + 3) // 4) if address >= 0 else ():
                found.setdefault(word % 32, {}).setdefault(word, []).append(lane)
        groups.append(found)
    return groups


def _served(given: int, kind: str) -> int:
    """Return the lanes that the groups cover: those that give a row of a matrix, else the whole warp."""
    return given if kind == "matrix" else 32


def _checked(addresses: Sequence[int], width_bytes: int, kind: str) -> tuple[np.ndarray, int]:
    if kind not in KINDS:
        raise UsageError(f"kind of access must be one of {', '.join(KINDS)}, not {kind}")
    if width_bytes not in (1, 2, 4, 8, 16):
        raise UsageError(f"access width must be 1, 2, 4, 8 or 16 bytes, not {width_bytes}")
    if kind == "matrix" and (width_bytes != 16 or len(addresses) not in (8, 16, 32)):
        raise UsageError(f"matrix access must be 8, 16 or 32 rows of 16 bytes, not {len(addresses)} of {width_bytes}")
    if not 1 <= len(addresses) <= 32:
        raise UsageError(f"addresses must be of 1 to 32 lanes, not {len(addresses)}")
    lanes = np.full(32, -1, np.int64)
    lanes[: len(addresses)] = addresses
    for lane, address in enumerate(lanes.tolist()):
        if address >= 0 and address % width_bytes:
            raise UsageError(f"address of lane {lane} must be a multiple of {width_bytes}, not {address:#x}")
    return lanes, len(addresses)
