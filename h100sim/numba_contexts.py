"""Numba's contexts as our functions need them: what has been resolved is remembered, and functions call each other as C does.

Numba's functions return a status and write their result through a pointer, so that an exception can be passed on. Ours never raise:
they return their result, which halves the code of a call.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import BuiltinFunctionType
from typing import Any

import llvmlite.ir as llvm_ir
from numba import types
from numba.core import base, callconv, cgutils, cpu, errors, event, funcdesc, typeinfer, typing
from numba.cpython.builtins import do_minmax

#: Operators whose results have types that follow from the types of numbers, whatever constants they are.
_ARITHMETIC = frozenset(
    getattr(operator, prefix + name)
    for prefix, names in (
        ("", "add sub mul truediv floordiv mod lshift rshift and_ or_ xor eq ne lt le gt ge neg pos invert not_"),
        ("i", "add sub mul truediv floordiv mod lshift rshift and or xor"),
    )
    for name in names.split()
)


class _Refreshed:
    """Refreshes a context of Numba only where something has been declared since; Numba looks through all it has several times for
    every function."""

    def __init__(self, context: Any):
        self.refresh, self.at = context.refresh, -1
        self.registries = context._registries

    def __call__(self) -> None:
        declared = sum(len(getattr(of, name)) for of, loader in self.registries.items() for name in loader.registry_items)
        if self.at != declared:
            self.refresh()
            self.at = declared


def _remembering(get_call_type: Callable) -> Callable:
    remembered: dict = {}

    def get(context: Any, args: tuple, kws: dict) -> Any:
        key = args, tuple(kws.items())
        if key not in remembered:
            remembered[key] = get_call_type(context, args, kws)
        return remembered[key]

    return get


class _Typing(typing.Context):
    """Numba's typing context (its state is shared) that remembers what it has resolved: a third of compiling is asking again what
    the sum of two integers is."""

    _remembered: dict
    _operators: dict

    def __init__(self, context: typing.Context):
        self.__dict__ = {**context.__dict__, "_remembered": {}, "_operators": {}, "refresh": _Refreshed(context)}

    def resolve_value_type(self, val: Any) -> Any:
        """Return the type of a constant; that of an operator, which lowering asks for each use, remembers its calls."""
        if not isinstance(val, BuiltinFunctionType) or (val not in _ARITHMETIC and val is not operator.getitem):
            return super().resolve_value_type(val)
        if val not in self._operators:
            self._operators[val] = own = copy.copy(super().resolve_value_type(val))
            own.get_call_type = _remembering(own.get_call_type)
        return self._operators[val]

    def resolve_function_type(self, func: Any, args: tuple, kws: dict) -> Any:
        if func in _ARITHMETIC and all(isinstance(t, types.Number | types.Boolean) for t in map(types.unliteral, args)):
            args = tuple(map(types.unliteral, args))
        elif _is_extreme(func, args):
            args = tuple(map(types.unliteral, args))
            return typing.signature(self.unify_types(*args), *args)
        elif not isinstance(func, types.Function | types.NumberClass) and func not in _ARITHMETIC and func is not operator.getitem:
            return super().resolve_function_type(func, args, kws)
        key = func, args, tuple(kws.items())
        found = self._remembered.get(key)
        if found is None and (found := super().resolve_function_type(func, args, kws)) is not None:
            self._remembered[key] = found
        return found


@cache
def typing_of(context: typing.Context) -> _Typing:
    """Return a copy of the typing context (its state is shared) that remembers."""
    return _Typing(context)


#: What compares the arguments of ``max`` and ``min``. (Numba would compile a function for each set of types.)
_EXTREMES = {max: operator.gt, min: operator.lt}


def _is_extreme(func: Any, args: tuple) -> bool:
    """Is a function ``max`` or ``min`` of numbers?"""
    is_one = isinstance(func, types.Function) and func.typing_key in _EXTREMES and len(args) > 1
    return is_one and all(isinstance(t, types.Number) for t in args)


class Direct(funcdesc.PythonFunctionDescriptor):
    """What Numba knows of a function that returns its result as C does."""

    __slots__ = ()


class _DirectCalls(callconv.CPUCallConv):
    """How code in such a function takes its arguments and returns. It calls Numba's own functions as Numba does."""

    def decode_arguments(self, builder: Any, argtypes: Any, func: Any) -> Any:
        return self._get_arg_packer(argtypes).from_arguments(builder, func.args)

    def return_value(self, builder: Any, retval: Any) -> None:
        builder.ret(retval)

    def return_zero(self, builder: Any, *_: Any, **__: Any) -> None:
        """Go back where Numba would raise: our functions never come to such places."""
        builder.ret(llvm_ir.Constant(builder.function.function_type.return_type, None))

    return_user_exc = return_native_none = return_exc = return_status_propagate = return_zero

    def set_static_user_exc(self, *_: Any, **__: Any) -> None:
        """Say nothing of an exception that nobody would see."""


class _Target(cpu.CPUContext):
    """Numba's target context, which knows both kinds of functions and remembers sizes. It is refreshed where needed."""

    sizes: dict[str, int]

    @property
    def call_conv(self) -> Any:
        return (_DirectCalls if isinstance(self.fndesc, Direct) else callconv.CPUCallConv)(self)

    def declare_function(self, module: Any, fndesc: Any) -> Any:
        """Declare a function in a module."""
        if not isinstance(fndesc, Direct):
            return super().declare_function(module, fndesc)
        returned = self.data_model_manager[fndesc.restype].get_return_type()
        taken = list(self.get_arg_packer(fndesc.argtypes).argument_types)
        function = cgutils.get_or_insert_function(module, llvm_ir.FunctionType(returned, taken), fndesc.mangled_name)
        function.attributes.add("nounwind")
        return function

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return what makes the code of a call."""
        if not _is_extreme(fn, sig.args):
            return super().get_function(fn, sig, _firstcall)
        return lambda builder, args, loc=None: do_minmax(self, builder, sig.args, args, _EXTREMES[fn.typing_key])

    def insert_user_function(self, func: Any, fndesc: Any, libs: Iterable = ()) -> None:
        """Let code call a compiled function."""
        if not isinstance(fndesc, Direct):
            super().insert_user_function(func, fndesc, libs)
            return
        call = _direct_call(fndesc, libs)
        self._defns[func].append(call, fndesc.argtypes)

    def get_getattr(self, typ: Any, attr: str) -> Any:
        """Return what reads a member. (Numba looks for a way of this member's own first, and describes all others when there is none.)"""
        return self._getattrs[None].find((typ,)) if isinstance(typ, types.Record) else super().get_getattr(typ, attr)

    def get_setattr(self, attr: str, sig: Any) -> Any:
        """Return what writes one."""
        if not isinstance(sig.args[0], types.Record):
            return super().get_setattr(attr, sig)
        write = self._setattrs[None].find(sig.args)
        return lambda builder, args: write(self, builder, sig, args, attr)

    def get_abi_sizeof(self, ty: Any) -> int:
        """Return the size of a type. (Numba has LLVM read a module for each question.)"""
        name = str(ty)
        if name not in self.sizes:
            self.sizes[name] = super().get_abi_sizeof(ty)
        return self.sizes[name]


def _direct_call(fndesc: Direct, libs: Iterable) -> Callable:
    """Return what makes the code of a call."""

    def call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = context.declare_function(builder.module, fndesc)
        taken = context.get_arg_packer(fndesc.argtypes).as_arguments(builder, args)
        return context.get_returned_value(builder, fndesc.restype, builder.call(function, taken))

    call.libs = tuple(libs)  # type: ignore[attr-defined]
    return call


@cache
def target_of(context: cpu.CPUContext) -> _Target:
    """Return a copy of the target context (its state is shared) for our functions."""
    context.refresh()
    own: Any = copy.copy(context)
    own.__class__ = _Target
    own.sizes = {}
    own.refresh = _Refreshed(context)
    own.typing_context = typing_of(context.typing_context)
    return own


_has_loc = cache(base._has_loc)


class _Context:
    """Says of an error where it was, as Numba's ``new_error_context`` does, of which there are some for each statement."""

    __slots__ = ("named", "text", "words")

    def __init__(self, text: str, *words: Any, **named: Any):
        self.text, self.words, self.named = text, words, named

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, errors.NumbaError):
            error.add_context(self.text.format(*self.words, **self.named))


@contextmanager
def in_haste() -> Iterator[None]:
    """Have Numba tell nobody of each call of LLVM, which unless somebody listens takes longer than most such calls, ask a function
    only once for its parameters, and say nothing of where it is unless something is wrong there."""
    before = event.start_event, event.end_event, base._has_loc, typeinfer.new_error_context
    if not any(event._registered.values()):
        event.start_event = event.end_event = lambda *_, **__: None
    base._has_loc, typeinfer.new_error_context = _has_loc, _Context
    try:
        yield
    finally:
        event.start_event, event.end_event = before[:2]
        base._has_loc, typeinfer.new_error_context = before[2:]
