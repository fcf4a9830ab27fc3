"""How Numba's intermediate code of our functions becomes LLVM's: as Numba does it, with a third of the instructions.

Variables that are set once stay values, and only the others get memory, which is not cleared; a loop over a range counts down, and has no
code for a step that is not there. Functions that count references keep Numba's way where it matters.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite.ir import Constant, Undefined
from numba import types
from numba.core import errors, ir, lowering


class Lower(lowering.Lower):
    """Numba's lowering, made shorter."""

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that stay values: set once, before they are read in the order of blocks; where references are counted, and
        read in one block only."""
        is_counting = self.context.enable_nrt
        set_in: dict[str, int | None] = {}
        others: set[str] = set()
        for label, block in self.blocks.items():  # in order
            for statement in block.body:
                for variable in _read(statement):
                    where = set_in.get(variable.name)
                    if where is None or (is_counting and where != label):
                        others.add(variable.name)
                if isinstance(statement, ir.Assign):
                    name = statement.target.name
                    set_in[name] = None if name in set_in else label
        self._singly_assigned_vars = {name for name, label in set_in.items() if label is not None} - others
        self._blk_local_varmap: dict = {}

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        with self.builder.goto_entry_block():
            place = self.builder.alloca(lltype, name=name)
            if self.context.enable_nrt:  # what is replaced is released
                self.builder.store(Constant(lltype, None), place)
        return place

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        if self.context.enable_nrt:
            super().storevar(value, name, argidx)
        elif name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

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

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        if op in (operator.pow, operator.ipow) or not all(isinstance(t, types.Number | types.Boolean) for t in signature.args):
            return super().lower_binop(resty, expr, op)
        values = [self._cast_var(var, type_) for var, type_ in zip((expr.lhs, expr.rhs), signature.args, strict=True)]
        kind = self.context.typing_context.resolve_value_type(op)
        made = self.context.get_function(kind, kind.get_call_type(self.context.typing_context, signature.args, {}))
        return self.context.cast(self.builder, made(self.builder, values), signature.return_type, resty)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if expr.op in ("getiter", "iternext", "pair_first", "pair_second"):
            of = self.typeof(expr.value.name)
            if expr.op == "getiter" and isinstance(of, types.RangeType) and self._has_unit_step(expr.value):
                return self._range_iterator(self.loadvar(expr.value.name), resty)
            if expr.op == "iternext" and isinstance(of, types.RangeIteratorType):
                return self._next_of_range(self.loadvar(expr.value.name), resty)
            if isinstance(of, types.Pair) and isinstance(of.first_type, types.Integer):
                return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        return super().lower_expr(resty, expr)

    def _has_unit_step(self, variable: Any) -> bool:
        try:
            made = self.func_ir.get_definition(variable)
        except KeyError:
            return False
        return isinstance(made, ir.Expr) and made.op == "call" and len(made.args) < 3 and not made.vararg

    def _range_iterator(self, of: Any, type_: Any) -> Any:
        """Return Numba's iterator over a range whose step is 1: where its next number and the count of those left are, and between
        them what nobody asks for."""
        builder = self.builder
        first, stop, step = (builder.extract_value(of, k) for k in range(3))
        with builder.goto_entry_block():
            places = [builder.alloca(first.type) for _ in range(2)]
        left = builder.sub(stop, first)
        builder.store(first, places[0])
        builder.store(builder.select(builder.icmp_signed(">", stop, first), left, left.type(0)), places[1])
        result = Constant(self.context.get_value_type(type_), Undefined)
        for k, value in enumerate((places[0], stop, step, places[1])):
            result = builder.insert_value(result, value, k)
        return result

    def _next_of_range(self, iterator: Any, type_: Any) -> Any:
        """Return the pair of the next number and whether there is one."""
        builder = self.builder
        place, step, count = (builder.extract_value(iterator, k) for k in (0, 2, 3))
        number, left = builder.load(place), builder.load(count)
        builder.store(builder.add(number, step), place)
        builder.store(builder.sub(left, left.type(1)), count)
        pair = builder.insert_value(Constant(self.context.get_value_type(type_), Undefined), number, 0)
        return builder.insert_value(pair, builder.icmp_signed(">", left, left.type(0)), 1)

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.function.linkage = self.library.linkage


def _read(statement: Any) -> list:
    """Return the variables that a statement reads."""
    if not isinstance(statement, ir.Assign):
        return statement.list_vars()
    value = statement.value
    if isinstance(value, ir.Var):
        return [value]
    return value.list_vars() if isinstance(value, ir.Inst) else []
