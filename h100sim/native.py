"""The few low-level pieces that compiled code is built from: pointers, indirect calls, and where compiled code is cached.

Every instruction of a kernel is one small function with the same signature, ``int64 f(regs, mask, ops, ctx)``, compiled by
Numba on first use to a C function pointer. The warp loop calls it through its address, so a kernel pays only for the
operations that it uses. ``regs`` is the address of the warp's register file, ``mask`` the active lanes, ``ops`` the address of
an int32 array (byte offset of every operand's row in the register file), ``ctx`` the address of the machine's context record.

Compiled code is cached on disk. Numba notices when the file of a function changes but not when a function that it calls does,
so the cache folder carries a digest of all sources that compiled code comes from.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

#: int64 f(int64 regs, int64 mask, int64 ops, int64 ctx)
SIGNATURE = types.int64(types.int64, types.int64, types.int64, types.int64)

_PACKAGE = Path(__file__).parent
_COMPILED_SOURCES = ("native.py", "state.py", "services.py", "engine.py", "units", "isa", "numerics", "layouts", "memory", "tma", "tma.py")


@cache
def cache_dir() -> Path:
    """Return the folder for compiled code: H100SIM_CACHE_DIR or the user's cache folder, then a digest of the sources."""
    if root := os.environ.get("H100SIM_CACHE_DIR"):
        base = Path(root)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "h100sim"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "h100sim"
    folder = base / (os.environ.get("H100SIM_CACHE_KEY") or source_digest())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def source_digest() -> str:
    """Return a digest of every source file that compiled code is made from, and of the versions of Numba and Python."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version}".encode())
    for entry in _COMPILED_SOURCES:
        path = _PACKAGE / entry
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
        for file in files:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def jit(function: Callable) -> Callable:
    """Compile ``function`` with Numba in nopython mode on first use, cached in :func:`cache_dir`."""
    with _CacheDir():
        return numba.njit(cache=True)(function)


class _CacheDir:
    """Point Numba's cache to ours while a function is being decorated (the folder is chosen at that moment)."""

    def __enter__(self) -> None:
        self.before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_dir())

    def __exit__(self, *_: object) -> None:
        numba.config.CACHE_DIR = self.before


_callbacks: dict[Callable, object] = {}


def address_of(function: Callable) -> int:
    """Compile a plain Python function to the instruction signature and return its address; it stays alive for the process."""
    callback = _callbacks.get(function)
    if callback is None:
        with _CacheDir():
            callback = numba.cfunc(SIGNATURE, cache=True)(function)
        _callbacks[function] = callback
    return callback.address  # type: ignore[attr-defined]


@intrinsic
def as_pointer(typingctx, address):
    """Turn an int64 address into a void pointer for ``carray``."""
    signature = types.voidptr(types.int64)

    def codegen(context, builder, sig, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return signature, codegen


@intrinsic
def call(typingctx, function, regs, mask, ops, ctx):
    """Call the function at an address with the instruction signature."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        i64 = ir.IntType(64)
        pointer = builder.inttoptr(args[0], ir.FunctionType(i64, [i64] * 4).as_pointer())
        return builder.call(pointer, args[1:])

    return signature, codegen


@jit
def u8(address, size):
    return carray(as_pointer(address), (size,), np.uint8)


@jit
def u32(address, size):
    return carray(as_pointer(address), (size,), np.uint32)


@jit
def u64(address, size):
    return carray(as_pointer(address), (size,), np.uint64)


@jit
def i32(address, size):
    return carray(as_pointer(address), (size,), np.int32)


@jit
def i64(address, size):
    return carray(as_pointer(address), (size,), np.int64)


@jit
def u16(address, size):
    return carray(as_pointer(address), (size,), np.uint16)
