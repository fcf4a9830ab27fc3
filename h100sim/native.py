"""The few low-level pieces that compiled code is built from: pointers, indirect calls, and where compiled code is cached.

Every instruction of a kernel is one small function with the same signature, ``int64 f(regs, mask, ops, ctx)``, compiled by
Numba on first use to a C function pointer. The warp loop calls it through its address, so a kernel pays only for the
operations that it uses. ``regs`` is the address of the warp's register file, ``mask`` the active lanes, ``ops`` the address of
an int32 array (byte offset of every operand's row in the register file), ``ctx`` the address of the machine's context record.

Compiled code is cached on disk. Numba notices when the file of a function changes but not when a function that it calls does,
so the cache folder of a source file carries a digest of that file and of everything it imports.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import caching, cgutils
from numba.extending import intrinsic as _intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

#: int64 f(int64 regs, int64 mask, int64 ops, int64 ctx)
SIGNATURE = types.int64(types.int64, types.int64, types.int64, types.int64)

#: Numba's decorator; what it makes takes one argument less (the typing context) than what it is given.
intrinsic: Callable[[Callable], Callable] = _intrinsic

_PACKAGE = Path(__file__).parent
#: Imports at the start of a line: what code of the module may call. Imports inside functions never reach compiled code.
_IMPORT = re.compile(r"^from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)


@cache
def cache_root() -> Path:
    """Return the folder that all compiled code is kept in: H100SIM_CACHE_DIR or one in the user's cache folder."""
    if root := os.environ.get("H100SIM_CACHE_DIR"):
        base = Path(root)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "h100sim"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "h100sim"
    base.mkdir(parents=True, exist_ok=True)
    return base


@cache
def cache_dir(source: str) -> Path:
    """Return the folder for code compiled from a source file: its name has a digest of all that the file is made of."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {sys.version}".encode())
    for file in sorted(source_closure(Path(source))):
        digest.update(file.read_bytes())
    folder = cache_root() / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def source_closure(source: Path) -> set[Path]:
    """Return a source file and every file of this package that it imports, directly or not."""
    found, todo = set(), [source]
    while todo:
        file = todo.pop()
        if file not in found and file.exists():
            found.add(file)
            todo.extend(imported_files(file))
    return found


@cache
def imported_files(source: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports at the start of a line."""
    files = []
    for module, names in _IMPORT.findall(source.read_text()):
        dots = len(module) - len(module.lstrip("."))
        parts = [part for part in module.lstrip(".").split(".") if part]
        if dots:
            folder = source.parents[dots - 1]
        elif parts[:1] == ["h100sim"]:
            folder, parts = _PACKAGE, parts[1:]
        else:
            continue
        home = folder.joinpath(*parts)
        names_found = re.findall(r"(\w+)(?:\s+as\s+\w+)?", re.sub(r"#[^\n]*", "", names))
        files += [home.with_suffix(".py"), *(home / f"{name}.py" for name in names_found)]
    return tuple(file for file in files if file.is_file())


def jit(function: Callable) -> Callable:
    """Compile ``function`` with Numba in nopython mode on first use, cached in :func:`cache_dir`."""
    with _CacheDir(function):
        return _by_type(numba.njit(cache=True)(function))


def unlocked(function: Callable) -> Callable:
    """The same for a function that takes long: other threads of Python run meanwhile."""
    with _CacheDir(function):
        return _by_type(numba.njit(cache=True, nogil=True)(function))


def inner(function: Callable) -> Callable:
    """Compile a function that only compiled code calls: without the wrappers for Python, which take a fifth of the time."""
    with _CacheDir(function):
        return _by_type(numba.njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))  # type: ignore[call-overload]


def _by_type(dispatcher: Callable) -> Callable:
    """Let a function be compiled once for an argument's type, not again for every constant that compiled code passes (LLVM
    puts constants in where it inlines), nor for int32, which Numba computes with as int64."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # it is the plain function then
        return dispatcher
    resolve = dispatcher.get_call_template  # type: ignore[attr-defined]

    def get_call_template(args: tuple, kws: dict) -> tuple:
        return resolve(tuple(map(_general, args)), {name: _general(type_) for name, type_ in kws.items()})

    dispatcher.get_call_template = get_call_template  # type: ignore[attr-defined]
    return dispatcher


def _general(type_: types.Type) -> types.Type:
    """Return the type that stands for an argument's type in compiled functions."""
    type_ = types.unliteral(type_)
    return types.int64 if type_ is types.int32 else type_


class _CacheDir:
    """Point Numba's cache to ours while a function is being decorated (the folder is chosen at that moment)."""

    def __init__(self, function: Callable):
        self.settings = {"CACHE_DIR": str(cache_dir(function.__code__.co_filename)), "CACHE_LOCATOR_CLASSES": _LOCATOR}

    def __enter__(self) -> None:
        self.before = {name: getattr(numba.config, name, "") for name in self.settings}
        self._set(self.settings)

    def __exit__(self, *_: object) -> None:
        self._set(self.before)

    @staticmethod
    def _set(settings: dict[str, str]) -> None:
        for name, value in settings.items():
            setattr(numba.config, name, value)


if hasattr(caching, "UserProvidedCacheLocator"):

    class ContentLocator(caching.UserProvidedCacheLocator):
        """Leaves out where a source file lies: checkouts and environments with the same sources share what is compiled."""

        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            return Path(py_file).parent.name

    _LOCATOR = f"{__name__}.{ContentLocator.__name__}"
else:  # Numba below 0.62 cannot be told, and compares the time of a file
    _LOCATOR = ""


_callbacks: dict[Callable, object] = {}


def address_of(function: Callable) -> int:
    """Compile a plain Python function to the instruction signature and return its address; it stays alive for the process."""
    callback = _callbacks.get(function)
    if callback is None:
        with _CacheDir(function):
            callback = numba.cfunc(SIGNATURE, cache=True)(function)
        _callbacks[function] = callback
    return callback.address  # type: ignore[attr-defined]


@intrinsic
def call(typingctx, function, regs, mask, ops, ctx):
    """Call the function at an address with the instruction signature."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        i64 = ir.IntType(64)
        pointer = builder.inttoptr(args[0], ir.FunctionType(i64, [i64] * 4).as_pointer())
        return builder.call(pointer, args[1:])

    return signature, codegen


def _element(builder, type_, address, index):
    """Return the pointer to an element of an array of integers at an address."""
    return builder.gep(builder.inttoptr(address, type_.as_pointer()), [index])


@intrinsic
def load_i32(typingctx, address, index):
    """Return element ``index``, not negative, of the int32s at an address: one instruction, which an index of an array is not."""

    def codegen(context, builder, sig, args):
        return builder.sext(builder.load(_element(builder, ir.IntType(32), *args)), ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_i64(typingctx, address, index):
    """The same of the int64s at an address."""

    def codegen(context, builder, sig, args):
        return builder.load(_element(builder, ir.IntType(64), *args))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store_i64(typingctx, address, index, value):
    """Set element ``index``, not negative, of the int64s at an address."""

    def codegen(context, builder, sig, args):
        builder.store(args[2], _element(builder, ir.IntType(64), args[0], args[1]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def store_i32(typingctx, address, index, value):
    """The same of the int32s at an address: the low half of the value."""

    def codegen(context, builder, sig, args):
        type_ = ir.IntType(32)
        builder.store(builder.trunc(args[2], type_), _element(builder, type_, args[0], args[1]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def trailing_zeros(typingctx, value):
    """Return the number of the lowest bit that is set in an int64, which must not be 0."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@intrinsic
def copy_bytes(typingctx, target, source, size):
    """Copy bytes between two addresses that do not overlap. (Assigning slices would compile Numba's error messages.)"""
    signature = types.void(types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        to, source_, count = (builder.inttoptr(args[0], cgutils.voidptr_t), builder.inttoptr(args[1], cgutils.voidptr_t), args[2])
        cgutils.raw_memcpy(builder, to, source_, count, 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fill_bytes(typingctx, target, value, size):
    """Set bytes at an address to one value."""
    signature = types.void(types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        to = builder.inttoptr(args[0], cgutils.voidptr_t)
        cgutils.memset(builder, to, args[2], builder.trunc(args[1], ir.IntType(8)))
        return context.get_dummy_value()

    return signature, codegen


def _array(context: Any, builder: Any, type_: types.Array, address: Any, lengths: list) -> Any:
    """Return an array in C order over the memory at an address."""
    array = make_array(type_)(context, builder)
    itemsize = stride = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_data_type(type_.dtype)))
    strides = [stride]
    for length in reversed(lengths[1:]):
        strides.insert(0, stride := builder.mul(stride, length))
    populate_array(array, builder.inttoptr(address, array.data.type), lengths, strides, itemsize, None)
    return array._getvalue()


@intrinsic
def array_at(typingctx, address, shape, dtype):
    """Return an array of one type and any number of dimensions over the memory at an address."""
    type_ = types.Array(dtype.dtype, len(shape), "C")

    def codegen(context, builder, sig, args):
        lengths = zip(cgutils.unpack_tuple(builder, args[1]), shape, strict=True)
        return _array(context, builder, type_, args[0], [context.cast(builder, n, given, types.int64) for n, given in lengths])

    return type_(types.int64, shape, dtype), codegen


def _vector(dtype: types.Type) -> Callable:
    """Return the function that gives an array of one dimension over the memory at an address. (``numba.carray`` would compile
    some functions for each type.)"""
    type_ = types.Array(dtype, 1, "C")

    @intrinsic
    def vector(typingctx, address, size):
        def codegen(context, builder, sig, args):
            return _array(context, builder, type_, args[0], [args[1]])

        return type_(types.int64, types.int64), codegen

    return vector


u8, u16, u32, u64 = (_vector(t) for t in (types.uint8, types.uint16, types.uint32, types.uint64))
i32, i64 = _vector(types.int32), _vector(types.int64)

#: Length of a table whose length compiled code does not ask for.
_MANY = 1 << 40


def table(parent: np.dtype, field: str, dtype: np.dtype) -> Callable:
    """Return the function that gives the table of records whose address is a field of the record ``parent`` at an address."""
    type_ = types.Array(from_dtype(dtype), 1, "C")

    @intrinsic
    def rows(typingctx, address):
        def codegen(context, builder, sig, args):
            return _array(context, builder, type_, _field(builder, parent, field, args[0]), [ir.Constant(ir.IntType(64), _MANY)])

        return type_(types.int64), codegen

    return rows


def record(dtype: np.dtype, parent: np.dtype | None = None, field: str = "") -> Callable:
    """Return the function that gives the record at an address, or at the address in a field of the record ``parent`` there."""
    type_ = from_dtype(dtype)

    @intrinsic
    def row(typingctx, address):
        def codegen(context, builder, sig, args):
            place = args[0] if parent is None else _field(builder, parent, field, args[0])
            return builder.inttoptr(place, context.get_value_type(type_))

        return type_(types.int64), codegen

    return row


def _field(builder: Any, dtype: np.dtype, field: str, address: Any) -> Any:
    """Return the int64 in a field of the record at an address."""
    assert dtype.fields and dtype[field] == np.int64
    return builder.load(_element(builder, ir.IntType(64), address, ir.Constant(ir.IntType(64), dtype.fields[field][1] // 8)))
