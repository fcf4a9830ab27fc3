"""Numba's passes as our functions need them, and the code that they make: less of everything, and machine code only of entries."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core import cgutils, codegen, compiler, errors, ir, lowering, rewrites
from numba.core.compiler_machinery import LoweringPass
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import (
    InlineOverloads,
    IRLegalization,
    NopythonTypeInference,
    PreLowerStripPhis,
    type_inference_stage,
)
from numba.core.typing import templates
from numba.core.untyped_passes import FixupArgs, GenericRewrites, ReconstructSSA, TranslateByteCode

from .numba_contexts import Direct

if not hasattr(codegen.CPUCodegen, "_pass_builder"):
    raise ImportError("Numba must have the pass manager of LLVM 20, as from 0.62 on")


class LinkedLibrary(codegen.JITCodeLibrary):
    """The code of a function that only compiled code calls, with all that it calls: simplified, and never machine code."""

    #: Does the function count references to arrays? Then those that get arrays from it must.
    counts = False

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


class ObjectLibrary(LinkedLibrary):
    """The code of a function that is entered through its address."""

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


class _Lower(lowering.Lower):
    """Numba's lowering, which finds out faster which variables need memory and says nothing to a debugger."""

    def _find_singly_assigned_variable(self) -> None:
        seen: dict[str, int | None] = {}  # the one block with an assignment, None if there are more
        elsewhere: set[str] = set()
        for label, block in self.blocks.items():
            defined: set[str] = set()
            for statement in block.body:
                target = statement.target.name if isinstance(statement, ir.Assign) else None
                elsewhere.update(v.name for v in _read(statement) if v.name not in defined)
                if target is not None:
                    seen[target] = None if target in seen else label
                    defined.add(target)
        self._singly_assigned_vars = {name for name, label in seen.items() if label is not None} - elsewhere
        self._blk_local_varmap: dict = {}

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        return cgutils.alloca_once(self.builder, lltype, name=name)

    def pre_block(self, block: Any) -> None:
        if self.context.enable_nrt:
            super().pre_block(block)
        self._cur_ir_block = block

    def lower_block(self, block: Any) -> None:
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            try:
                self.lower_inst(statement)
            except errors.NumbaError:
                raise
            except Exception as error:
                raise errors.LoweringError(f"{type(error).__name__}: {error} in {statement}", statement.loc) from error
        self.post_block(block)

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        if isinstance(ty, types.Dispatcher):  # of a function that is called by its name
            return self.context.get_constant_null(ty)
        return super().lower_assign(ty, inst)

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        if not isinstance(self.library, ObjectLibrary):
            self.function.linkage = "linkonce_odr"


def _read(statement: Any) -> list:
    """Return the variables that a statement reads."""
    if not isinstance(statement, ir.Assign):
        return statement.list_vars()
    value = statement.value
    if isinstance(value, ir.Var):
        return [value]
    return value.list_vars() if isinstance(value, ir.Inst) else []


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
            lower = _Lower(context, library, descriptor, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        entry = never_entered(descriptor, lower.env, library)
        context.insert_user_function(entry, descriptor, [library])
        state["cr"] = compiler._LowerResult(descriptor, lower.call_helper, cfunc=entry, env=lower.env)
        return True


def never_entered(descriptor: Any, environment: Any, library: LinkedLibrary) -> Any:
    """Return what Numba knows a compiled function by, for one that Python cannot call."""
    return _dynfunc.make_function(descriptor.lookup_module(), descriptor.qualname, "", 0, environment, (library,))


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


class Types(NopythonTypeInference):
    """Numba's type inference, which lets functions return arrays that they do not own."""

    _name = "h100sim_types"

    def run_pass(self, state: Any) -> bool:
        state.typemap, state.return_type, state.calltypes, _ = type_inference_stage(
            state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
        )
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
    TranslateByteCode,
    FixupArgs,
    Rewrites,
    Versions,
    Types,
    NoPhis,
    InlineOverloads,
    EndsOfVariables,
)
