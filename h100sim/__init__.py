"""h100sim: give it the PTX of an sm_90a kernel and it does, without a GPU, what an H100 does.

The public names of the package and nothing else; each is imported from its home on first use, so that ``import h100sim`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks import Hazard as Hazard
    from .debugger import Debugger as Debugger
    from .debugger import Replay as Replay
    from .host import Buffer as Buffer
    from .host import Device as Device
    from .host import RawModule as RawModule
    from .layouts import fragment as fragment
    from .layouts import operand_addresses as operand_addresses
    from .memory.global_memory import GlobalMemory as GlobalMemory
    from .numerics.mma_sync import mma_sparse as mma_sparse
    from .numerics.mma_sync import mma_sync as mma_sync
    from .numerics.scalar import scalar as scalar
    from .numerics.wgmma import wgmma as wgmma
    from .numerics.wgmma import wgmma_sparse as wgmma_sparse
    from .session import Run as Run
    from .tma import TensorMap as TensorMap
    from .tma import tma_load as tma_load
    from .tma import tma_store as tma_store
    from .trace import Event as Event
    from .trace import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "wgmma": ".numerics.wgmma",
    "wgmma_sparse": ".numerics.wgmma",
    "mma_sync": ".numerics.mma_sync",
    "mma_sparse": ".numerics.mma_sync",
    "scalar": ".numerics.scalar",
    "operand_addresses": ".layouts",
    "fragment": ".layouts",
    "TensorMap": ".tma",
    "tma_load": ".tma",
    "tma_store": ".tma",
    "GlobalMemory": ".memory.global_memory",
    "Device": ".host",
    "Buffer": ".host",
    "RawModule": ".host",
    "Run": ".session",
    "Debugger": ".debugger",
    "Replay": ".debugger",
    "Trace": ".trace",
    "Event": ".trace",
    "Hazard": ".checks",
    **dict.fromkeys(
        (
            "CycleLimit", "DeadlockError", "H100SimError", "IllegalInstruction", "KernelError", "LaunchError",
            "MisalignedAddress", "OutOfRange", "PtxError", "TensorMapError", "Trap", "UsageError",
        ),
        ".errors",
    ),
}  # fmt: skip

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'h100sim' has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
