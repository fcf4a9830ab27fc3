"""The DSL: kernels for Hopper in ThunderKittens' vocabulary, written in Python and traced once into PTX.

Tiles are ``st`` (shared), ``rt`` (registers) and ``gl`` (global), vectors ``sv``, ``col_vec`` and ``row_vec``.
Operations put their destination first and are named by who executes them: ``tma.*`` and ``arrive`` one thread,
``warp.*`` each warp, ``warpgroup.*`` four warps together. Coordinates count tiles; ``tma.expect_bytes`` is an
arrival.
"""

from . import cluster, tma, warp, warpgroup
from .builder import MAX_SHARED_BYTES
from .choices import maximum, minimum, select, var
from .control import blockIdx, elect, gridDim, laneid, warpgroups, warpid, warps, when
from .control import range_ as range
from .elements import atomic_add, read, write
from .floats import Float, FloatVar, exp2, log2, rcp, rsqrt, to_float, to_int
from .kernel import Argument, DebugInfo, Kernel, Parameter, kernel
from .register_tiles import rt
from .register_vectors import col_vec, row_vec, rv
from .scalars import Int, Pred, Ring, Var, ring
from .semaphores import (
    Barrier,
    Semaphore,
    arrive,
    barrier,
    fence_mbarrier_init,
    fence_proxy_async,
    init_semaphore,
    invalidate_semaphore,
    semaphore,
    semaphores,
    sync,
    wait,
)
from .tiles import bf16, fl, fp8e4m3, fp8e5m2, gl, half, int32, st, sv

__all__ = [
    "MAX_SHARED_BYTES",
    "Argument",
    "Barrier",
    "DebugInfo",
    "Float",
    "FloatVar",
    "Int",
    "Kernel",
    "Parameter",
    "Pred",
    "Ring",
    "Semaphore",
    "Var",
    "arrive",
    "atomic_add",
    "barrier",
    "bf16",
    "blockIdx",
    "cluster",
    "col_vec",
    "elect",
    "exp2",
    "fence_mbarrier_init",
    "fence_proxy_async",
    "fl",
    "fp8e4m3",
    "fp8e5m2",
    "gl",
    "gridDim",
    "half",
    "init_semaphore",
    "int32",
    "invalidate_semaphore",
    "kernel",
    "laneid",
    "log2",
    "maximum",
    "minimum",
    "range",
    "rcp",
    "read",
    "ring",
    "row_vec",
    "rsqrt",
    "rt",
    "rv",
    "select",
    "semaphore",
    "semaphores",
    "st",
    "sv",
    "sync",
    "tma",
    "to_float",
    "to_int",
    "var",
    "wait",
    "warp",
    "warpgroup",
    "warpgroups",
    "warpid",
    "warps",
    "when",
    "write",
]
