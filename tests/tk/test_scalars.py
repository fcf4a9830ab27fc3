"""Integers of the kernel mean what Python's mean: the emitted PTX, interpreted here, gives Python's results."""

import operator
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim import tk
from h100sim.errors import UsageError
from h100sim.tk.builder import Builder, tracing
from h100sim.tk.scalars import Int

WRAP = 1 << 32


def signed(x):
    return (x + (WRAP >> 1)) % WRAP - (WRAP >> 1)


OPERATIONS = {
    "add.s32": operator.add,
    "sub.s32": operator.sub,
    "mul.lo.s32": operator.mul,
    "and.b32": operator.and_,
    "or.b32": operator.or_,
    "xor.b32": operator.xor,
    "shl.b32": operator.lshift,
    "shr.s32": operator.rshift,
    "div.s32": lambda a, b: int(a / b),
    "div.u32": lambda a, b: (a % WRAP) // (b % WRAP),
    "rem.u32": lambda a, b: (a % WRAP) % (b % WRAP),
    "min.s32": min,
    "max.s32": max,
    "setp.lt.s32": operator.lt,
    "setp.le.s32": operator.le,
    "setp.gt.s32": operator.gt,
    "setp.ge.s32": operator.ge,
    "setp.eq.s32": operator.eq,
    "setp.ne.s32": operator.ne,
    "and.pred": operator.and_,
    "or.pred": operator.or_,
}


def interpret(builder, registers):
    """Execute the straight-line integer PTX of a builder on a dictionary of registers."""

    def value(operand):
        return registers[operand] if operand.startswith("%") else int(operand)

    for line in builder.lines:
        guard, opcode, operands = re.fullmatch(r"(?:@(%\w+) )?(\S+) (.*);", line.text).groups()
        d, *sources = operands.split(", ")
        if guard and not registers[guard]:
            continue
        if opcode == "mov.b32":
            registers[d] = value(sources[0])
        elif opcode == "not.pred":
            registers[d] = not value(sources[0])
        elif opcode == "selp.b32":
            registers[d] = value(sources[0]) if registers[sources[2]] else value(sources[1])
        else:
            result = OPERATIONS[opcode](value(sources[0]), value(sources[1]))
            registers[d] = result if isinstance(result, bool) else signed(result)
    return registers


def evaluate(expression, *values, nonnegative=False):
    """Return the value of ``expression`` on Ints that hold ``values``."""
    builder = Builder("test", 1)
    with tracing(builder):
        inputs = [Int(f"%x{i}", nonnegative) for i in range(len(values))]
        result = expression(*inputs)
    registers = interpret(builder, {f"%x{i}": v for i, v in enumerate(values)})
    return registers[result.register]


small = st.integers(-1000, 1000)


@given(small, st.integers(1, 40))
def test_division_rounds_down_as_in_python(a, b):
    assert evaluate(lambda x: x // b, a) == a // b
    assert evaluate(lambda x: x % b, a) == a % b
    assert evaluate(lambda x, y: x // y, a, b) == a // b
    assert evaluate(lambda x, y: x % y, a, b) == a % b
    assert evaluate(lambda x: sum(divmod(x, b)), a) == sum(divmod(a, b))


@given(st.integers(0, 1000), st.integers(1, 40))
def test_division_of_what_is_never_negative(a, b):
    assert evaluate(lambda x: x // b, a, nonnegative=True) == a // b
    assert evaluate(lambda x, y: x % y, a, b, nonnegative=True) == a % b
    assert evaluate(lambda y: a // y, b, nonnegative=True) == a // b


@given(small, small)
def test_arithmetic_and_comparisons(a, b):
    for operation in (operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor):
        assert evaluate(operation, a, b) == operation(a, b)
        assert evaluate(lambda x, f=operation: f(x, b), a) == operation(a, b)
        assert evaluate(lambda y, f=operation: f(a, y), b) == operation(a, b)
    for operation in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        assert evaluate(operation, a, b) == operation(a, b)
    assert evaluate(lambda x: -x, a) == -a
    assert evaluate(lambda x: (x << 3) >> 1, a) == a * 4
    assert evaluate(tk.minimum, a, b) == min(a, b)
    assert evaluate(tk.maximum, a, b) == max(a, b)


@given(small, small)
def test_conditions_combine(a, b):
    assert evaluate(lambda x, y: (x < y) & ~(x == 3) | (y > 7), a, b) == ((a < b and a != 3) or b > 7)
    assert evaluate(lambda x, y: tk.select(x < y, x + 1, 5), a, b) == (a + 1 if a < b else 5)


@given(st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "^", "&", "|", "<<", ">>"]), st.integers(1, 3))))
def test_variables_change_in_place(steps):
    python = {
        "+": operator.iadd, "-": operator.isub, "*": operator.imul, "//": operator.ifloordiv, "%": operator.imod,
        "^": operator.ixor, "&": operator.iand, "|": operator.ior, "<<": operator.ilshift, ">>": operator.irshift,
    }  # fmt: skip
    builder = Builder("test", 1)
    with tracing(builder):
        variable, alias, expected = tk.var(7), None, 7
        alias = variable
        for symbol, operand in steps:
            variable = python[symbol](variable, operand)
            expected = signed(python[symbol](expected, operand))
    assert variable is alias
    assert interpret(builder, {})[variable.register] == expected


@given(st.integers(1, 6), st.integers(0, 20))
def test_a_ring_goes_round_and_flips_its_phase(stages, steps):
    builder = Builder("test", 1)
    with tracing(builder):
        ring = tk.ring(stages)
        for _ in range(steps):
            ring.advance()
    registers = interpret(builder, {})
    assert registers[ring.stage.register] == steps % stages
    assert registers[ring.phase.register] == steps // stages % 2


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda x: bool(x),
         "condition of the kernel must be given to tk.when, not to Python's if, while, and, or, not"),
        (lambda x: bool(x < 3),
         "condition of the kernel must be given to tk.when, not to Python's if, while, and, or, not"),
        (lambda x: range(x),
         "integer of the kernel must be used with tk.range and tk operations, not where Python needs its value"),
        (lambda x: x + 1.5, "integer of the kernel must be an int or a tk integer, not float"),
        (lambda x: x + (1 << 32), "integer of the kernel must fit 32 bits, not 4294967296"),
        (lambda x: x // 0, "divisor must be positive, not 0"),
        (lambda x: x % -2, "divisor must be positive, not -2"),
        (lambda x: (x < 1) & 1, "condition must be combined with another condition of the kernel, not int"),
        (lambda x: tk.ring(0), "ring must have at least 1 stage, not 0"),
    ],
)  # fmt: skip
def test_misuse_is_named(misuse, message):
    with tracing(Builder("test", 1)), pytest.raises(UsageError) as error:
        misuse(Int("%x0"))
    assert error.value.message == message
    assert error.value.where.source.startswith("test_scalars.py:")
