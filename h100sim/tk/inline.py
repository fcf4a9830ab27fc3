"""``tk.ptx``: an instruction written by hand, for what the language has no word for."""

from __future__ import annotations

from typing import Any

from .builder import current, usage
from .floats import Float, is_number, number
from .scalars import Int, Pred, is_divergent, text

_RESULTS = {"r": Int, "f": Float, "p": Pred}


def ptx(template: str, *operands: Any, out: str = "", divergent: bool = False) -> Any:
    """Emit one PTX instruction. ``{0}``, ``{1}``, ... in ``template`` stand for the operands (integers, numbers and
    conditions of the kernel or of Python), ``{d}`` for the register of the result.

    ``out``: "r" for an Int, "f" for a Float, "p" for a condition, "" for an instruction without a result. ``divergent``:
    lanes of a warp get different results even from equal operands. PTX: ``template``.
    """
    if out not in ("", *_RESULTS) or ("{d}" in template) != bool(out):
        raise usage(f'result of tk.ptx must be out="r", "f" or "p" with {{d}} in the template, or neither, not "{out}"')
    register = current().register(out) if out else ""
    try:
        instruction = template.format(*(_operand(x) for x in operands), d=register)
    except (IndexError, KeyError, ValueError) as error:
        known = ", ".join(["d", *map(str, range(len(operands)))])
        raise usage(f"names in the template of tk.ptx must be {known} (other braces doubled), not {error}") from None
    current().emit(instruction.rstrip().rstrip(";"))
    return _RESULTS[out](register, divergent=divergent or any(map(is_divergent, operands))) if out else None


def _operand(value: Any) -> str:
    if isinstance(value, Pred):
        return value.register
    return number(value) if is_number(value) and not isinstance(value, int) else text(value)
