"""Small PTX kernels for tests: a wrapper that adds the header, and a launcher that returns the run and the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import h100sim

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"


def entry(parameters: str, body: str, *, directives: str = "", outside: str = "", name: str = "kernel") -> str:
    """Return a module with one entry: ``parameters`` as "u64 out, u32 n", ``body`` the statements."""
    formal = ", ".join(f".param .{p.split()[0]} {p.split()[1]}" for p in parameters.split(",") if p.strip())
    return f"{HEADER}{outside}\n.visible .entry {name}({formal}) {directives}\n{{\n{body}\n}}\n"


def launch(ptx: str, args: tuple[Any, ...], *, grid: Any = 1, block: Any = 32, name: str = "kernel", **options: Any) -> h100sim.Run:
    """Run the kernel ``name`` of a module; arrays among ``args`` are updated in place."""
    function = h100sim.RawModule(code=ptx).get_function(name)
    function.max_dynamic_shared_size_bytes = 232_448
    return function(grid, block, args, **options)


def zeros(n: int, dtype: Any = np.uint32) -> np.ndarray:
    return np.zeros(n, dtype)


#: out[global thread] = %r_value; the address ends up in %rd_out.
STORE_THREAD = """
    .reg .b64 %rd_out, %rd_i; .reg .b32 %r_t, %r_b, %r_n;
    ld.param.u64 %rd_out, [out];
    mov.u32 %r_t, %tid.x; mov.u32 %r_b, %ctaid.x; mov.u32 %r_n, %ntid.x;
    mad.lo.s32 %r_t, %r_b, %r_n, %r_t;
    mul.wide.u32 %rd_i, %r_t, 4; add.s64 %rd_out, %rd_out, %rd_i;
    st.global.u32 [%rd_out], %r_value;
"""
