"""Numba with the passes and the machine code that our functions need, and no more: they compile in half the time.

Numba compiles every function to machine code and links it into each caller besides. Functions that only compiled code calls need no
machine code of their own; those that are entered from outside need it once, after all that they call has been linked in and
optimised together. Passes for what our functions do not have (lifted loops, closures, array expressions, generators) are left out.

This is the one place that uses what Numba does not document. Where a version lacks any of it, :mod:`.plain_compiling` takes its place.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core import caching, ccallback, codegen, compiler, errors, funcdesc, ir, lowering, registry, sigutils, typing
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import (
    BaseNativeLowering,
    InlineOverloads,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
    type_inference_stage,
)
from numba.core.typing import templates
from numba.core.untyped_passes import FixupArgs, GenericRewrites, ReconstructSSA, TranslateByteCode

if not hasattr(codegen.CPUCodegen, "_pass_builder"):
    raise ImportError("Numba must have the pass manager of LLVM 20, as from 0.62 on")


class LinkedLibrary(codegen.JITCodeLibrary):
    """The code of a function that only compiled code calls, with all that it calls: simplified, and never machine code."""

    #: Does the function count references to arrays? Then those that get arrays from it must.
    counts = False

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple:
        self._ensure_finalized()
        return self.name, "counting" if self.counts else "linked", self._get_module_for_linking().as_bitcode()

    @classmethod
    def of_bitcode(cls, owner: Any, name: str, bitcode: bytes) -> LinkedLibrary:
        """Return the library that was serialised."""
        self = cls(owner, name)
        self._shared_module = self._final_module = llvm.parse_bitcode(bitcode)
        self._finalized = True
        return self


class EntryLibrary(codegen.JITCodeLibrary):
    """The machine code of a function that is entered from outside; other functions do not link it."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return self._codegen._engine.get_function_address(name)

    def serialize_using_object_code(self) -> tuple:
        self._ensure_finalized()
        return self.name, "entry", (self._get_compiled_object(),)

    @classmethod
    def of_object(cls, owner: Any, name: str, code: bytes) -> EntryLibrary:
        """Return the library that was serialised."""
        self = cls(owner, name)
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        return self


class LinkedLowering(BaseNativeLowering):
    """Numba's lowering without machine code and without an entry for Python."""

    _name = "h100sim_linked_lowering"  # type: ignore[assignment]

    @property
    def lowering_class(self) -> type:
        return lowering.Lower

    def run_pass(self, state: Any) -> bool:
        library, context, flags = state.library, state.targetctx, state.flags
        descriptor = funcdesc.PythonFunctionDescriptor.from_specialized_function(
            state.func_ir,
            state.typemap,
            state.return_type,
            state.calltypes,
            mangler=context.mangler,
            inline=flags.forceinline,
            noalias=flags.noalias,
            abi_tags=[flags.get_mangle_string()],
        )
        with context.push_code_library(library):
            lower = self.lowering_class(context, library, descriptor, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        entry = never_entered(descriptor, lower.env, library)
        context.insert_user_function(entry, descriptor, [library])
        state["cr"] = compiler._LowerResult(descriptor, lower.call_helper, cfunc=entry, env=lower.env)
        return True


def never_entered(descriptor: Any, environment: Any, library: LinkedLibrary) -> Any:
    """Return what Numba knows a compiled function by, for one that Python cannot call."""
    return _dynfunc.make_function(descriptor.lookup_module(), descriptor.qualname, "", 0, environment, (library,))


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
        elif not isinstance(func, types.Function | types.NumberClass) and func not in _ARITHMETIC and func is not operator.getitem:
            return super().resolve_function_type(func, args, kws)
        key = func, args, tuple(kws.items())
        found = self._remembered.get(key)
        if found is None and (found := super().resolve_function_type(func, args, kws)) is not None:
            self._remembered[key] = found
        return found


class Types(NopythonTypeInference):
    """Numba's type inference, which lets functions return arrays that they do not own."""

    _name = "h100sim_types"

    def run_pass(self, state: Any) -> bool:
        state.typemap, state.return_type, state.calltypes, _ = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
        )
        return True


class Versions(ReconstructSSA):
    """Numba's static single assignment, without looking where variables live, which nobody asks."""

    _name = "h100sim_versions"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class NoPhis(PreLowerStripPhis):
    """Numba's removal of phi nodes, without looking where variables live."""

    _name = "h100sim_no_phis"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class _MakesArrays(Exception):
    """A function must count references."""


class EndsOfVariables(IRLegalization):
    """Says where variables end, for counting references; what counts and what does not must not hand arrays to each other."""

    _name = "h100sim_ends_of_variables"

    def run_pass(self, state: Any) -> bool:
        if not state.flags.nrt:
            if _makes_arrays(state):
                raise _MakesArrays
            return False
        counted = _counted(state)
        for call, signature in state.calltypes.items():
            callee = _called(state, call)
            if callee and not callee.counts and signature.return_type in counted and not counted.isdisjoint(signature.args):
                raise errors.CompilerError("a function that makes arrays must not call one that may return its argument", call.loc)
        state.library.counts = True
        return super().run_pass(state)


def _called(state: Any, call: Any) -> LinkedLibrary | None:
    """Return the code of the function that is called, if it is one of ours."""
    if not isinstance(call, ir.Expr) or call.op != "call":
        return None
    callee = state.typemap[call.func.name]
    if not isinstance(callee, types.Dispatcher):
        return None
    linked = getattr(callee.dispatcher, "linked_form", lambda: callee.dispatcher)()
    library = linked.overloads[state.calltypes[call].args].library
    return library if isinstance(library, LinkedLibrary) else None


def _counted(state: Any) -> set:
    """Return the types of variables to which references may be counted."""
    return {t for t in {*state.typemap.values()} if state.targetctx.data_model_manager[t].contains_nrt_meminfo()}


def _makes_arrays(state: Any) -> bool:
    """Does a function make arrays or other things that are counted (not merely views of what it is given)?"""
    counted = _counted(state)
    if any(not isinstance(type_, types.Array | types.BaseTuple) for type_ in counted):
        return True
    for call, signature in state.calltypes.items():
        if signature is None or signature.return_type not in counted or call.op in ("getitem", "static_getitem", "build_tuple"):
            continue
        if library := _called(state, call):
            if library.counts:
                return True
            continue
        callee = state.typemap[call.func.name] if call.op == "call" else None
        if not isinstance(callee, types.Function) or any(not issubclass(t, templates._IntrinsicTemplate) for t in callee.templates):
            return True
    return False


_BEFORE_LOWERING = (
    TranslateByteCode,
    FixupArgs,
    GenericRewrites,
    Versions,
    Types,
    NoPhis,
    InlineOverloads,
    EndsOfVariables,
)


@cache
def _typing(context: typing.Context) -> _Typing:
    return _Typing(context)


@cache
def _target(context: Any) -> Any:
    """Return a copy of the target context (its state is shared) that is refreshed where needed."""
    context.refresh()
    own = copy.copy(context)
    own.refresh = _Refreshed(context)
    own.typing_context = _typing(context.typing_context)
    return own


class Compiler(compiler.CompilerBase):
    """The passes, for a function that is entered from outside.

    References to arrays are counted only in functions that make arrays; the others borrow what they are given.
    """

    lowering: type = NativeLowering
    library: type = EntryLibrary

    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
        counts: bool = False,
    ):
        self._arguments = typingctx, targetctx, library, args, return_type, flags, locals
        flags = flags.copy()
        flags.nrt = counts
        super().__init__(_typing(typingctx), _target(targetctx), library, args, return_type, flags, locals)

    def compile_extra(self, func: Callable) -> Any:
        try:
            return super().compile_extra(func)
        except _MakesArrays:
            return type(self)(*self._arguments, counts=True).compile_extra(func)

    @classmethod
    @cache
    def _passes(cls) -> list:
        return [pass_() for pass_ in (*_BEFORE_LOWERING, cls.lowering, NoPythonBackend)]

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

    lowering = LinkedLowering
    library = LinkedLibrary


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
        return super().load_overload(sig, _target(target_context))


class _LinkedCache(_Cache):
    _impl_class = _LinkedCompileResults


def entered(function: Callable, **options: bool) -> Any:
    """Return Numba's dispatcher for a function that Python calls. Compiled code that calls it links another form."""
    settings: Any = {"no_cfunc_wrapper": True, "pipeline_class": Compiler, **options}
    dispatcher: Any = numba.njit(**settings)(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


class _LinkedDispatcher(registry.CPUDispatcher):
    def __call__(self, *args: Any, **kws: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} must be called by compiled code, not by Python")


def linked(function: Callable) -> Any:
    """Return Numba's dispatcher for a function that only compiled code calls."""
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": LinkedCompiler}
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.__class__ = _LinkedDispatcher
    dispatcher._cache = _LinkedCache(function)
    return dispatcher


def callback(function: Callable, signature: templates.Signature) -> Any:
    """Compile a function that is called through its address, which the result has."""
    pipeline: Any = Compiler
    made = ccallback.CFunc(function, sigutils.normalize_signature(signature), locals={}, options={}, pipeline_class=pipeline)
    made.compile()
    return made
