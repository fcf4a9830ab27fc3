"""Where the CTAs of a grid go: how many fit one SM, which SMs can hold one cluster, and the order in which they are taken.

The SMs of a GPU form GPCs, and a cluster stays within one; some TPCs (pairs of SMs) belong to none that has room for more than
their own two CTAs. So clusters of more than two CTAs leave SMs idle, and the first wave is smaller than the number of SMs.

Measured: validate/silicon/cta_placement.json. Clusters go to the GPCs in turn, to those SMs of a GPC that have the fewest CTAs;
CTAs without clusters fill a GPC before the next. The GPC that is first differs from launch to launch: here it is the one of SM 0.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .devices import DeviceModel, Limits
from .errors import LaunchError

_TPC = 2
#: SMs of a GPC beyond those that a model names. Assumed: as most GPCs of the models have.
_GPC = 16


def ctas_per_sm(limits: Limits, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many CTAs fit one SM, of so many threads, registers of a thread and bytes of shared memory.

    Spec: the occupancy header of CUDA 13.0. Raises LaunchError where not one does."""
    warps = -(-threads // 32)
    unit = limits.shared_unit_bytes
    shared = -(-(shared_bytes + limits.shared_reserved_bytes) // unit) * unit
    registers_per_warp = -(-registers * 32 // 256) * 256
    registers_fit = (limits.registers_per_sm // 4 // registers_per_warp) * 4 // warps
    if registers_fit == 0:
        raise LaunchError(
            f"registers of a CTA must be at most {limits.registers_per_sm:,}, not {registers} for each of {threads} threads",
            rule="cudaErrorLaunchOutOfResources",
        )
    found = [limits.ctas_per_sm, registers_fit]
    for what, needed, most in (
        ("warps", warps, limits.warps_per_sm),
        ("bytes of shared memory", shared, limits.shared_bytes_per_sm),
    ):
        if needed > most:
            raise LaunchError(
                f"{what} of a CTA must be at most the {most:,} of an SM, not {needed:,}", rule="cudaErrorInvalidConfiguration"
            )
        found.append(most // needed)
    return min(found)


def sm_groups(model: DeviceModel) -> tuple[list[list[int]], list[list[int]]]:
    """Return the SMs of each GPC and of each TPC that stands alone. TPCs are numbered across GPCs: the first of each, then the
    second of each; those alone come last. A model with another number of SMs than its GPCs have is cut off, or goes on with
    GPCs of 16."""
    left, sizes = model.sms, []
    for size in model.gpcs:
        sizes.append(min(size, left))
        left -= sizes[-1]
    alone = min(left, _TPC * model.lone_tpcs)
    left -= alone
    sizes += [min(_GPC, left - k) for k in range(0, left, _GPC)]
    gpcs: list[list[int]] = [[] for size in sizes if size]
    number = 0
    while number < sum(sizes):
        for gpc, size in zip(gpcs, sizes, strict=False):
            count = min(_TPC, size - len(gpc))
            gpc += range(number, number + count)
            number += count
    return gpcs, [list(range(k, min(k + _TPC, model.sms))) for k in range(number, model.sms, _TPC)]


#: Where an SM stands: its GPC, the half of L2 on its side, its distance class, and its TPC as a bit (66 TPCs share 64 bits).
STAND = np.dtype([("gpc", "i4"), ("side", "i4"), ("near", "i4"), ("tpc_bit", "u8")])


@lru_cache(64)
def stands(model: DeviceModel) -> tuple[np.ndarray, np.ndarray]:
    """Return where each SM stands (STAND), and the bits of the TPCs of each GPC (uint64).

    Measured: validate/silicon/l2_latency.json, one H200: TPCs that stand alone are on the side of the smallest GPC. Assumed: they
    share its way to L2."""
    gpcs, alone = sm_groups(model)
    smallest = min(range(len(gpcs)), key=lambda k: len(gpcs[k])) if gpcs else 0
    found, tpcs = np.zeros(model.sms, STAND), np.zeros(max(1, len(gpcs)), np.uint64)
    for k, group in [*enumerate(gpcs), *((smallest, tpc) for tpc in alone)]:
        side, near = model.gpc_sides[k % len(model.gpc_sides)]
        for sm in group:
            found[sm] = k, side, near, 1 << (sm // _TPC & 63)
            tpcs[k] |= found[sm]["tpc_bit"]
    return found, tpcs


@lru_cache(64)
def places(model: DeviceModel, cluster: int, residents: int) -> tuple[tuple[int, ...], ...]:
    """Return the SMs of each cluster that can run at once, in the order in which they are taken, where an SM holds so many CTAs
    (``residents``). Raises LaunchError for a cluster that no GPC can hold."""
    gpcs, alone = sm_groups(model)
    largest = max(map(len, (*gpcs, *alone)))
    if cluster > largest:
        rule = f"must be at most the {largest} SMs of the largest GPC of {model.name}, not {cluster}"
        raise LaunchError(f"CTAs of a cluster {rule}", rule="cudaErrorInvalidClusterSize")
    held = [0] * model.sms
    found: list[tuple[int, ...]] = []

    def take(group: list[int]) -> None:
        sms = tuple(sorted(sorted(group, key=lambda sm: held[sm])[:cluster]))
        for sm in sms:
            held[sm] += 1
        found.append(sms)

    for layer in range(1, residents + 1):
        for tpc in alone:
            for _ in range(len(tpc) // cluster):
                take(tpc)
        waiting = [gpc for gpc in gpcs if len(gpc) >= cluster]
        while waiting:
            for gpc in waiting:
                take(gpc)
                while cluster == 1 and sum(held[sm] for sm in gpc) < layer * len(gpc):
                    take(gpc)
            waiting = [gpc for gpc in waiting if sum(held[sm] for sm in gpc) + cluster <= layer * len(gpc)]
    return tuple(found)
