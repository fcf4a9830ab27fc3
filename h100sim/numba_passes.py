"""Numba's passes as our functions need them, and the code that they make: less of everything, and machine code only of entries."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core import cgutils, codegen, compiler, errors, interpreter, ir, rewrites, typeinfer
from numba.core.compiler_machinery import LoweringPass
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import (
    InlineOverloads,
    IRLegalization,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing import templates
from numba.core.untyped_passes import FixupArgs, GenericRewrites, ReconstructSSA, TranslateByteCode

from .numba_contexts import Direct
from .numba_lowering import Lower

if not hasattr(codegen.CPUCodegen, "_pass_builder"):
    raise ImportError("Numba must have the pass manager of LLVM 20, as from 0.62 on")


class LinkedLibrary(codegen.JITCodeLibrary):
    """The code of a function that only compiled code calls, with all that it calls: simplified, and never machine code."""

    #: Does the function count references to arrays? Then those that get arrays from it must.
    counts = False
    #: How the function is known to other modules.
    linkage = "linkonce_odr"

    def __init__(self, owner: Any, name: str):
        codegen.CodeLibrary.__init__(self, owner, name)
        self._linking_libraries: list = []
        self._final_module = self._shared_module = None

    def add_ir_module(self, ir_module: Any) -> None:
        self._raise_if_finalized()
        module = llvm.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        self._optimize_functions(module)
        if self._final_module is None:
            self._final_module = module
        else:
            self._final_module.link_in(module)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager(opt=1)
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


class ObjectLibrary(LinkedLibrary):
    """The code of a function that is entered through its address."""

    linkage = "external"

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def object_code(self, name: str, loops: str) -> bytes:
        """Return an object file with the function of a name; all else that it needs is inside."""
        module = self._final_module
        for function in module.functions:
            if not function.is_declaration and function.name != name:
                function.linkage = "internal"
        tuning = llvm.create_pipeline_tuning_options(speed_level=3 if loops == "elements" else 2)
        tuning.loop_vectorization = tuning.loop_interleaving = tuning.slp_vectorization = loops != "none"
        tuning.loop_unrolling = loops == "elements"  # a loop over 32 lanes must become vectors first
        builder = llvm.create_pass_builder(self._codegen._tm, tuning)
        builder.getModulePassManager().run(module, builder)
        return self._codegen._tm.emit_object(module)


class Lowering(LoweringPass):
    """Numba's lowering to code that calls as C does, without an entry for Python."""

    _name = "h100sim_lowering"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        library, context, flags = state.library, state.targetctx, state.flags
        descriptor = Direct.from_specialized_function(
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
            lower = Lower(context, library, descriptor, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        entry = never_entered(descriptor, lower.env, library)
        context.insert_user_function(entry, descriptor, [library])
        state["cr"] = compiler._LowerResult(descriptor, lower.call_helper, cfunc=entry, env=lower.env)
        return True


def never_entered(descriptor: Any, environment: Any, library: LinkedLibrary) -> Any:
    """Return what Numba knows a compiled function by, for one that Python cannot call."""
    return _dynfunc.make_function(descriptor.lookup_module(), descriptor.qualname, "", 0, environment, (library,))


class _Interpreter(interpreter.Interpreter):
    """Numba's reading of bytecode, without looking for what our functions do not have: ``with``, ``**`` and the like."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        return func_ir


class Translation(TranslateByteCode):
    """What it reads as a pass."""

    _name = "h100sim_translation"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = _Interpreter(state.func_id).interpret(state.bc)
        return True


class Rewrites(GenericRewrites):
    """Numba's rewriting of what has constants, without looking where variables live, which nobody asks."""

    _name = "h100sim_rewrites"

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks
        for rewrite in (kind(state) for kind in rewrites.rewrite_registry.rewrites["before-inference"]):
            for label, block in list(blocks.items()):
                while rewrite.match(state.func_ir, block, None, None):
                    blocks[label] = block = rewrite.apply()
        state.func_ir.blocks = canonicalize_cfg(blocks)
        state.func_ir.generator_info = None
        return True


class _Inferer(typeinfer.TypeInferer):
    """Numba's inference, which goes through all constraints once more only where a type has changed after it was asked for."""

    _has_changed = False

    def add_type(self, var: str, tp: Any, loc: Any, unless_locked: bool = False) -> None:
        before = self.typevars[var].type
        super().add_type(var, tp, loc, unless_locked)
        self._note(var, before)

    def copy_type(self, src_var: str, dest_var: str, loc: Any) -> None:
        before = self.typevars[dest_var].type
        super().copy_type(src_var, dest_var, loc)
        self._note(dest_var, before)

    def _note(self, var: str, before: Any) -> None:
        self._has_changed |= before is not None and self.typevars[var].type != before

    def propagate(self, raise_errors: bool = True) -> Any:
        if self._settles() or self._settles():
            return []
        return super().propagate(raise_errors)

    def _settles(self) -> bool:
        """Go through all constraints; return whether each has found the types that its operands have now."""
        copies, open_ = [], set()
        self._has_changed = False
        try:
            for constraint in self.constraints.constraints:
                if isinstance(constraint, typeinfer.Propagate):
                    copies.append(constraint)
                    open_.add(constraint.dst)
                elif open_ and not all(self.typevars[name].defined for name in open_):
                    return False
                else:
                    open_.clear()
                constraint(self)
            for constraint in copies:  # what comes from further down
                constraint(self)
        except errors.NumbaError:  # of a type that is not known yet, or of one that is wrong
            return False
        return not self._has_changed and all(variable.defined for variable in self.typevars.values())


class Types(NopythonTypeInference):
    """Numba's type inference, which lets functions return arrays that they do not own."""

    _name = "h100sim_types"

    def run_pass(self, state: Any) -> bool:
        context, function = state.typingctx, state.func_ir
        warnings = errors.WarningsFixer(errors.NumbaWarning)  # type: ignore[attr-defined]
        infer = _Inferer(context, function, warnings)
        with context.callstack.register(state.targetctx.target, infer, function.func_id, state.args):
            for index, (name, type_) in enumerate(zip(function.arg_names, state.args, strict=True)):
                infer.seed_argument(name, index, type_)
            if state.return_type is not None:
                infer.seed_return(state.return_type)
            infer.build_constraint()
            infer.propagate()
            state.typemap, state.return_type, state.calltypes = infer.unify()
        return True


class Versions(ReconstructSSA):
    """Numba's static single assignment, without looking where variables live."""

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


class EndsOfVariables(IRLegalization):
    """Says where variables end, in functions that count references; what counts and what does not must not hand arrays to each other."""

    _name = "h100sim_ends_of_variables"

    def run_pass(self, state: Any) -> bool:
        if not _makes_arrays(state):
            return False
        state.flags.nrt = True
        state.targetctx = state.targetctx.subtarget(enable_nrt=True)
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


BEFORE_LOWERING = (
    Translation,
    FixupArgs,
    Rewrites,
    Versions,
    Types,
    NoPhis,
    InlineOverloads,
    EndsOfVariables,
)
