"""The type that compiled code knows a table of records by: an address and nothing else, where an array of NumPy's has seven members
and looks whether an index is negative."""

from __future__ import annotations

import operator
from typing import Any

from numba import types
from numba.core import datamodel, typing
from numba.extending import lower_builtin, register_model


class Table(types.Type):
    """A table of records of one type."""

    def __init__(self, row: types.Record):
        self.row = row
        super().__init__(name=f"Table({row.name})")


register_model(Table)(datamodel.models.OpaqueModel)


@typing.templates.infer_global(operator.getitem)
class _Row(typing.templates.AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        table, index = args
        if isinstance(table, Table) and isinstance(index, types.Integer):
            return typing.signature(table.row, table, types.intp)
        return None


@lower_builtin(operator.getitem, Table, types.Integer)
def _row(context: Any, builder: Any, signature: Any, args: tuple) -> Any:
    rows = builder.bitcast(args[0], context.get_value_type(signature.return_type))
    return builder.gep(rows, [args[1]])
