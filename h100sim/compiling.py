"""Numba with the passes and the machine code that our functions need, and no more: they compile in a third of the time.

Numba compiles every function to machine code and links it into each caller besides. Functions that only compiled code calls need no
machine code of their own; those that are entered from outside need it once, after all that they call has been linked in and
optimised together. Passes for what our functions do not have (lifted loops, closures, array expressions, generators) are left out.

This module and those called ``numba_`` are the places that use what Numba does not document. Where a version lacks any of it,
:mod:`.plain_compiling` takes their place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba.core import caching, compiler, registry, sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import NativeLowering, NoPythonBackend
from numba.core.typing import templates

from .numba_contexts import in_haste, target_of, typing_of
from .numba_passes import BEFORE_LOWERING, EntryLibrary, LinkedLibrary, Lowering, ObjectLibrary, never_entered


class Compiler(compiler.CompilerBase):
    """The passes, for a function that Python calls.

    References to arrays are counted only in functions that make arrays; the others borrow what they are given.
    """

    lowering: type = NativeLowering
    library: type = EntryLibrary

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, locals: Any):
        flags = flags.copy()
        flags.nrt = False
        super().__init__(typing_of(typingctx), target_of(targetctx), library, args, return_type, flags, locals)

    @classmethod
    @cache
    def _passes(cls) -> list:
        return [pass_() for pass_ in (*BEFORE_LOWERING, cls.lowering, NoPythonBackend)]

    def _compile_core(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        inherited = state.flags.copy()
        inherited.nrt = True  # functions of Numba's that are compiled on the way are as others need them
        with ConfigStack().enter(inherited):
            for pass_ in self._passes():
                pass_.run_pass(state)
        state.pipeline = None
        return state.cr


class LinkedCompiler(Compiler):
    """The passes, for a function that only compiled code calls."""

    lowering = Lowering
    library = LinkedLibrary


class ObjectCompiler(LinkedCompiler):
    """The passes, for a function that is entered through its address."""

    library = ObjectLibrary


class _CompileResults(caching.CompileResultCacheImpl):
    """How functions are kept on disk."""

    def reduce(self, result: Any) -> tuple:
        descriptor = result.fndesc
        descriptor.typemap = descriptor.calltypes = None
        return result.library.serialize_using_object_code(), descriptor, result.environment, result.signature

    def rebuild(self, target_context: Any, payload: tuple) -> Any:
        (name, kind, data), descriptor, environment, signature = payload
        owner = target_context.codegen()
        if kind != "entry":
            library: Any = LinkedLibrary.of_bitcode(owner, name, data)
            library.counts = kind == "counting"
            entry = never_entered(descriptor, environment, library)
        else:
            library = EntryLibrary.of_object(owner, name, *data)
            entry = target_context.get_executable(library, descriptor, environment)
        return compiler.compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=entry,
            fndesc=descriptor,
            signature=signature,
            objectmode=False,
            lifted=(),
            reload_init=[],
        )


class _LinkedCompileResults(_CompileResults):
    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return super().get_filename_base(f"{fullname}-linked", abiflags)


class _Cache(caching.FunctionCache):
    _impl_class = _CompileResults

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_of(target_context))


class _LinkedCache(_Cache):
    _impl_class = _LinkedCompileResults


#: Options of Numba's. What is divided by zero is what NumPy makes of it, without an exception.
_OPTIONS: dict[str, Any] = {"no_cfunc_wrapper": True, "error_model": "numpy"}


def entered(function: Callable, **options: bool) -> Any:
    """Return Numba's dispatcher for a function that Python calls. Compiled code that calls it links another form."""
    settings: Any = {**_OPTIONS, "pipeline_class": Compiler, **options}
    dispatcher: Any = numba.njit(**settings)(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


class _LinkedDispatcher(registry.CPUDispatcher):
    def __call__(self, *args: Any, **kws: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} must be called by compiled code, not by Python")


def linked(function: Callable) -> Any:
    """Return Numba's dispatcher for a function that only compiled code calls."""
    options: Any = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": LinkedCompiler}
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.__class__ = _LinkedDispatcher
    dispatcher.targetctx = target_of(dispatcher.targetctx)
    dispatcher._cache = _LinkedCache(function)
    return dispatcher


def callback(function: Callable, signature: templates.Signature, loops: str) -> tuple[str, bytes]:
    """Compile a function that is called through its address: return its name and an object file.

    ``loops``: it runs over "lanes", over "elements", or over nothing that is worth looking for what could be vectorised ("none").
    """
    target = registry.cpu_target
    args, return_type = sigutils.normalize_signature(signature)
    flags = compiler.Flags()
    target.options.parse_as_flags(flags, dict(_OPTIONS))
    with global_compiler_lock, in_haste():
        made = ObjectCompiler(target.typing_context, target.target_context, None, args, return_type, flags, {}).compile_extra(
            function
        )
        name = made.fndesc.mangled_name
        return name, made.library.object_code(name, loops)
