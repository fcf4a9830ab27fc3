"""The few low-level pieces that compiled code is built from: pointers, indirect calls, and where compiled code is cached.

Every instruction of a kernel is one small function with the same signature, ``int64 f(regs, mask, ops, ctx)``, compiled by
Numba on first use to a C function pointer. The warp loop calls it through its address, so a kernel pays only for the
operations that it uses. ``regs`` is the address of the warp's register file, ``mask`` the active lanes, ``ops`` the address of
an int32 array (byte offset of every operand's row in the register file), ``ctx`` the address of the machine's context record.

Compiled code is cached on disk, in folders whose names carry a digest of the source file and of everything it imports, since
Numba notices when the file of a function changes but not when a function that it calls does. Numba itself is imported when
something has to be compiled: what this module makes are only promises (:class:`Deferred`), and what Python calls on the way to a
result, handlers and :func:`entry` functions, is loaded by :mod:`h100sim.machine_code`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np

from . import machine_code
from .code_cache import cache_dir, is_unchanged, object_file


class Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


ir, types, cgutils = Later("llvmlite.ir"), Later("numba.core.types"), Later("numba.core.cgutils")
numpy_support, tables = Later("numba.np.numpy_support"), Later(f"{__package__}.numba_tables")

#: NUMBA_DISABLE_JIT, where functions stay plain Python.
IS_PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class Deferred:
    """Something for compiled code, a function or an intrinsic, that Numba makes when it is first needed."""

    def __init__(self, function: Callable, make: Callable[[Callable], Any]):
        self.py_func, self._make = function, make
        self.__name__, self.__module__, self.__doc__ = function.__name__, function.__module__, function.__doc__
        self.__wrapped__ = function

    @cached_property
    def value(self) -> Any:
        """What Numba makes of it."""
        _teach_numba()
        return self._make(self.py_func)

    def __call__(self, *args: Any) -> Any:
        return self.value(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __reduce__(self) -> tuple:
        """Numba pickles what a compiled function refers to."""
        return _named, (self.__module__, self.py_func.__qualname__)


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


@cache
def _teach_numba() -> None:
    """Let Numba take a Deferred for what it stands for, and tables for what they are."""
    _ = tables.Table
    from numba.core.registry import cpu_target
    from numba.extending import typeof_impl

    @typeof_impl.register(Deferred)
    def _typeof(deferred: Deferred, _: Any) -> Any:
        try:
            return cpu_target.typing_context.resolve_value_type(deferred.value)
        except ValueError:  # an intrinsic, made since Numba last looked at what is new
            cpu_target.typing_context.refresh()
            return cpu_target.typing_context.resolve_value_type(deferred.value)


@cache
def _compiling() -> Any:
    """Return what asks Numba to compile."""
    try:
        return import_module(".compiling", __package__)
    except (ImportError, AttributeError):  # Numba below 0.62, or one that has changed inside
        return import_module(".plain_compiling", __package__)


def jit(function: Callable) -> Callable:
    """Compile ``function`` with Numba in nopython mode on first use, cached in :func:`cache_dir`. For compiled code that calls it
    there is another form, as of :func:`inner`."""

    def make(function: Callable) -> Any:
        with _CacheDir(function):
            dispatcher = _compiling().entered(function)
        dispatcher.linked_form = form = cache(lambda: _linked(function))
        dispatcher.get_call_template = lambda args, kws: form().get_call_template(args, kws)
        dispatcher.get_overload = lambda signature: form().get_overload(signature)
        return dispatcher

    return _deferred(function, make)


def inner(function: Callable) -> Callable:
    """Compile a function that only compiled code calls: without machine code of its own, to be linked into its callers."""
    return _deferred(function, _linked)


def _linked(function: Callable) -> Any:
    with _CacheDir(function):
        return _by_type(_compiling().linked(function))


def _deferred(function: Callable, make: Callable[[Callable], Any]) -> Callable:
    if IS_PLAIN:
        return function
    cache_dir(function.__code__.co_filename)  # as the file is now
    return Deferred(function, make)


def intrinsic(function: Callable) -> Callable:
    """Numba's decorator of that name; what it makes takes one argument less (the typing context) than ``function``."""

    def make(function: Callable) -> Any:
        from numba.extending import intrinsic

        return intrinsic(function)

    return Deferred(function, make)


def entry(*parameters: str, unlocked: bool = False) -> Callable[[Callable], Callable]:
    """Compile a function that Python calls often or early: without Numba, where its machine code is on disk.

    ``parameters`` are "int64", or "int64[:, :]" and the like for arrays, which must be contiguous and of just that type. The
    function gives an integer. ``unlocked``: it takes long, and other threads of Python run meanwhile.
    """

    def decorate(function: Callable) -> Callable:
        return function if IS_PLAIN else Entry(function, parameters, unlocked)

    return decorate


def data_address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


class Entry(Deferred):
    """What :func:`entry` makes. Compiled code may call it, too."""

    def __init__(self, function: Callable, parameters: tuple[str, ...], unlocked: bool):
        super().__init__(function, _linked)
        cache_dir(function.__code__.co_filename)  # as the file is now
        self.parameters, self.unlocked = parameters, unlocked

    def __call__(self, *args: Any) -> int:
        return self.native(*args)

    @cached_property
    def native(self) -> Callable[..., int]:
        """The compiled function for Python; compiled now if it never was."""
        shapes = [parameter.count(":") for parameter in self.parameters]
        prototype = ctypes.CFUNCTYPE if self.unlocked else ctypes.PYFUNCTYPE
        count = sum(1 + dimensions for dimensions in shapes)
        function = prototype(ctypes.c_int64, *[ctypes.c_int64] * count)(self.address)
        if not any(shapes):
            return function
        dtypes = [np.dtype(parameter.partition("[")[0]) for parameter in self.parameters]

        def call(*args: Any) -> int:
            words: list[int] = []
            for dtype, dimensions, arg in zip(dtypes, shapes, args, strict=True):
                if not dimensions:
                    words.append(int(arg))
                    continue
                if arg.dtype != dtype or arg.ndim != dimensions or not arg.flags.c_contiguous:
                    raise TypeError(f"array must be a contiguous {dtype} of {dimensions} dimensions, not {arg.dtype} {arg.shape}")
                words += (data_address(arg), *arg.shape)
            return function(*words)

        return call

    @property
    def address(self) -> int:
        return _address(self.py_func, self._compile)

    def _compile(self) -> tuple[str, bytes]:
        names, taken = [], []
        for k, parameter in enumerate(self.parameters):
            sizes = [f"n{k}_{axis}" for axis in range(parameter.count(":"))]
            names += [f"a{k}", *sizes]
            dtype = parameter.partition("[")[0]
            taken.append(f"array_at(a{k}, ({', '.join(sizes)},), {dtype})" if sizes else f"a{k}")
        text = f"def {self.__name__}({', '.join(names)}):\n    return function({', '.join(taken)})\n"
        space: dict[str, Any] = {"function": self, "array_at": array_at, "__name__": self.__module__}
        space |= {name: getattr(np, name) for name in {p.partition("[")[0] for p in self.parameters}}
        exec(text, space)
        return _compiling().callback(space[self.__name__], types.int64(*[types.int64] * len(names)), "none")


def _by_type(dispatcher: Any) -> Any:
    """Let a function be compiled once for an argument's type, not again for every constant that compiled code passes (LLVM
    puts constants in where it inlines), nor for int32, which Numba computes with as int64."""
    resolve = dispatcher.get_call_template

    def get_call_template(args: tuple, kws: dict) -> tuple:
        return resolve(tuple(map(_general, args)), {name: _general(type_) for name, type_ in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _general(type_: Any) -> Any:
    """Return the type that stands for an argument's type in compiled functions."""
    type_ = types.unliteral(type_)
    return types.int64 if type_ is types.int32 else type_


class _CacheDir:
    """Point Numba's cache to ours while a function is being decorated (the folder is chosen at that moment)."""

    def __init__(self, function: Callable):
        locator = f"{__package__}.cache_locator.ContentLocator" if _has_locators() else ""
        self.settings = {"CACHE_DIR": str(cache_dir(function.__code__.co_filename)), "CACHE_LOCATOR_CLASSES": locator}

    def __enter__(self) -> None:
        from numba import config

        self.before = {name: getattr(config, name, "") for name in self.settings}
        self._set(self.settings)

    def __exit__(self, *_: object) -> None:
        self._set(self.before)

    @staticmethod
    def _set(settings: dict[str, str]) -> None:
        from numba import config

        for name, value in settings.items():
            setattr(config, name, value)


@cache
def _has_locators() -> bool:
    """Can Numba be told how to find its cache? Below 0.62 it cannot, and compares the time of a file."""
    return hasattr(import_module("numba.core.caching"), "UserProvidedCacheLocator")


_addresses: dict[Callable, int] = {}


def _address(function: Callable, compile_now: Callable[[], tuple[str, bytes]]) -> int:
    """Return the address of a function's machine code, from its file or made by Numba (a name and an object file) and then kept
    there."""
    if function not in _addresses:
        path = object_file(function)
        address = machine_code.load(path)
        if address is None:
            _teach_numba()
            name, code = compile_now()
            if is_unchanged(function.__code__.co_filename):
                machine_code.save(path, name, code)
            address = machine_code.link(name, code)
        _addresses[function] = address
    return _addresses[function]


#: Modules whose functions with the instruction signature are loops over lanes or elements.
_LOOPS = {
    f"{__package__}.isa.lane": "lanes",
    f"{__package__}.numerics.tensor_core": "elements",
    f"{__package__}.units.tensor_core": "elements",
}


def address_of(function: Callable) -> int:
    """Compile a plain Python function to the instruction signature and return its address; it stays alive for the process."""
    loops = _LOOPS.get(function.__module__, "none")
    return _address(function, lambda: _compiling().callback(function, types.int64(*[types.int64] * 4), loops))


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


def _array(context: Any, builder: Any, type_: Any, address: Any, lengths: list) -> Any:
    """Return an array in C order over the memory at an address."""
    from numba.np.arrayobj import make_array, populate_array

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


def _vector(dtype: str) -> Callable:
    """Return the function that gives an array of one dimension over the memory at an address. (``numba.carray`` would compile
    some functions for each type.)"""

    @intrinsic
    def vector(typingctx, address, size):
        type_ = types.Array(getattr(types, dtype), 1, "C")

        def codegen(context, builder, sig, args):
            return _array(context, builder, type_, args[0], [args[1]])

        return type_(types.int64, types.int64), codegen

    return vector


u8, u16, u32, u64 = (_vector(name) for name in ("uint8", "uint16", "uint32", "uint64"))
i32, i64, f64 = (_vector(name) for name in ("int32", "int64", "float64"))


def table(parent: np.dtype, field: str, dtype: np.dtype) -> Callable:
    """Return the function that gives the table of records whose address is a field of the record ``parent`` at an address. All that
    can be done with it is to take a row."""

    @intrinsic
    def rows(typingctx, address):
        def codegen(context, builder, sig, args):
            return builder.inttoptr(_field(builder, parent, field, args[0]), cgutils.voidptr_t)

        return tables.Table(numpy_support.from_dtype(dtype))(types.int64), codegen

    return rows


def record(dtype: np.dtype, parent: np.dtype | None = None, field: str = "") -> Callable:
    """Return the function that gives the record at an address, or at the address in a field of the record ``parent`` there."""

    @intrinsic
    def row(typingctx, address):
        type_ = numpy_support.from_dtype(dtype)

        def codegen(context, builder, sig, args):
            place = args[0] if parent is None else _field(builder, parent, field, args[0])
            return builder.inttoptr(place, context.get_value_type(type_))

        return type_(types.int64), codegen

    return row


def _field(builder: Any, dtype: np.dtype, field: str, address: Any) -> Any:
    """Return the int64 in a field of the record at an address."""
    assert dtype.fields and dtype[field] == np.int64
    return builder.load(_element(builder, ir.IntType(64), address, ir.Constant(ir.IntType(64), dtype.fields[field][1] // 8)))
