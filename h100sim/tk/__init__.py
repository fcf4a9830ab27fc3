"""The DSL: kernels for Hopper in ThunderKittens' vocabulary, written in Python and traced once into PTX.

Tiles are ``st`` (shared), ``rt`` (registers) and ``gl`` (global), vectors ``sv``, ``col_vec`` and ``row_vec``.
Operations put their destination first and are named by who executes them: ``tma.*`` and ``arrive`` one thread,
``warp.*`` each warp, ``warpgroup.*`` four warps together. Coordinates count tiles; ``tma.expect_bytes`` is an
arrival.
"""

from . import cluster, pdl, tma, warp, warpgroup
from .builder import MAX_SHARED_BYTES
from .choices import maximum, minimum, select, var
from .complex_tiles import Complex, cgl, crt, crv, cst, csv
from .control import (
    blockIdx,
    break_when,
    continue_when,
    elect,
    gridDim,
    laneid,
    otherwise,
    warpgroups,
    warpid,
    warps,
    when,
    while_,
)
from .control import range_ as range
from .elements import atomic_add, read, write
from .floats import Float, FloatVar, exp2, log2, rcp, rsqrt, to_float, to_int
from .group import Group, everyone, group
from .inline import ptx
from .kernel import Argument, DebugInfo, Kernel, Parameter, kernel
from .prototype import lcf, lcsf
from .register_tiles import rt
from .register_vectors import col_vec, row_vec, rv
from .scalars import Int, Pred, Ring, Var, ring
from .semaphores import (
    Barrier,
    Semaphore,
    arrive,
    arrive_and_wait,
    barrier,
    fence_mbarrier_init,
    fence_proxy_async,
    get_phasebit,
    init_semaphore,
    invalidate_semaphore,
    phasebits,
    ring_advance,
    ring_retreat,
    semaphore,
    semaphores,
    sync,
    test_wait,
    try_wait,
    update_phasebit,
    wait,
)
from .shared_moves import load_async_wait
from .tiles import bf16, fl, fp8e4m3, fp8e5m2, gl, half, int32, st, sv

__all__ = [
    "MAX_SHARED_BYTES",
    "Argument",
    "Barrier",
    "Complex",
    "DebugInfo",
    "Float",
    "FloatVar",
    "Group",
    "Int",
    "Kernel",
    "Parameter",
    "Pred",
    "Ring",
    "Semaphore",
    "Var",
    "arrive",
    "arrive_and_wait",
    "atomic_add",
    "barrier",
    "bf16",
    "blockIdx",
    "break_when",
    "cgl",
    "cluster",
    "col_vec",
    "continue_when",
    "crt",
    "crv",
    "cst",
    "csv",
    "elect",
    "everyone",
    "exp2",
    "fence_mbarrier_init",
    "fence_proxy_async",
    "fl",
    "fp8e4m3",
    "fp8e5m2",
    "get_phasebit",
    "gl",
    "gridDim",
    "group",
    "half",
    "init_semaphore",
    "int32",
    "invalidate_semaphore",
    "kernel",
    "laneid",
    "lcf",
    "lcsf",
    "load_async_wait",
    "log2",
    "maximum",
    "minimum",
    "otherwise",
    "pdl",
    "phasebits",
    "ptx",
    "range",
    "rcp",
    "read",
    "ring",
    "ring_advance",
    "ring_retreat",
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
    "test_wait",
    "tma",
    "to_float",
    "to_int",
    "try_wait",
    "update_phasebit",
    "var",
    "wait",
    "warp",
    "warpgroup",
    "warpgroups",
    "warpid",
    "warps",
    "when",
    "while_",
    "write",
]
