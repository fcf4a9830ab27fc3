"""The rows of a register file that are the same for all warps of a launch: immediates, addresses of symbols, special registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .devices import DeviceModel
from .memory.windows import SHARED_START
from .program import Program
from .ptx.module import Imm, Symbol

if TYPE_CHECKING:
    from .machine import Launch

#: Bytes at the start of shared memory that the system keeps for itself (barriers of cooperative groups stand there), of the first
#: 1,024 that no variable gets. Measured: NVIDIA H200, driver 580.159, CUDA 13.0, 2026-11-30, %reserved_smem_offset_end; kernels may
#: write there.
_RESERVED_SHARED_END = 288


def template(program: Program, launch: Launch, model: DeviceModel, symbols: dict[str, int]) -> np.ndarray:
    """Return the rows that are the same for all warps: immediates, symbols, launch constants."""
    rows = np.zeros(program.template_bytes, np.uint8)
    for offset, value, width in program.constants:
        if isinstance(value, Imm):
            bits = value.value
        elif isinstance(value, Symbol):
            bits = symbols.get(value.name, 0) + value.offset if value.name else value.offset
        else:
            assert isinstance(value, tuple)
            bits = value_of(value[1], program, launch, model)
        if width == 1:
            rows[offset : offset + 4].view(np.uint32)[:] = 0xFFFFFFFF if bits else 0
        elif width == 64:
            rows[offset : offset + 256].view(np.uint64)[:] = bits & 0xFFFFFFFFFFFFFFFF
        else:
            rows[offset : offset + 128].view(np.uint32)[:] = bits & 0xFFFFFFFF
    return rows


def value_of(name: str, program: Program, launch: Launch, model: DeviceModel) -> int:
    """Return a special register that is the same for all threads, 0 for one that has no other value."""
    base, _, axis = name.partition(".")
    k = "xyz".find(axis) if axis else 0
    cluster = int(np.prod(launch.cluster))
    if axis == "w":
        return 0  # of every vector, machine code of ptxas 13.0
    values: dict[str, int] = {
        "ntid": launch.block[k],
        "nctaid": launch.grid[k],
        "cluster_nctaid": launch.cluster[k],
        "nclusterid": launch.grid[k] // launch.cluster[k],
        "nwarpid": model.limits.warps_per_sm,
        "nsmid": model.sms,
        "gridid": 1,
        "cluster_nctarank": cluster,
        "is_explicit_cluster": int(cluster > 1),
        "total_smem_size": program.static_shared_bytes + launch.shared_bytes,
        "aggr_smem_size": program.static_shared_bytes + launch.shared_bytes + SHARED_START,
        "dynamic_smem_size": launch.shared_bytes,
        "current_graph_exec": 0,
        "reserved_smem_offset_begin": 0,
        "reserved_smem_offset_end": _RESERVED_SHARED_END,
        "reserved_smem_offset_0": 0,
        "reserved_smem_offset_1": 0,
        "reserved_smem_offset_cap": SHARED_START,
        "WARP_SZ": 32,
    }
    return values.get(base, 0)
