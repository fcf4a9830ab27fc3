"""Products and sums that ``ptxas`` contracts to one multiply-add, which rounds once.

A ``mul``, ``add`` or ``sub`` that names no rounding (``mul.f32``, not ``mul.rn.f32``) may be contracted, says the manual. nvcc
and Triton leave such pairs, and a GPU gives other bits for them than two instructions would. ``ptxas`` does so where

- type and .ftz are the same, and the product has neither rounding nor .sat nor a guard; the approximate divisions end in such a
  product (of a reciprocal);
- both are in one basic block, and the sum is the only thing that is made of the product: one that is also stored, multiplied or
  read in another block stays, and so do all its sums. ``mov`` and (but for bf16) ``neg`` in between do not matter;
- of two products that are added the one with fewer sums goes into the sum, the first operand if there are as many.

Measured: machine code of ptxas 13.0 and 13.5 (-O3) for each of these, and the bits of an NVIDIA H200 (driver 580.159, CUDA 13.0) for
kernels that nvcc 13.0 has compiled (tests/test_contraction.py). Code for debuggers (``.target debug``) is not contracted. Not
seen: blocks that ptxas makes itself by unrolling loops, readers whose own result nobody needs, and bf16 products of several sums,
one of which prefers its other operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .isa import double, float, half, lane
from .isa.lane import LaneOp, Opcode, Operation
from .isa.machine import MachineOp
from .ptx.module import Function, Instruction, Label, Operand, Reg, Register

_SIGNED_FMA = {"f32": float.signed_fma, "f64": double.signed_fma} | dict.fromkeys(
    ("f16", "f16x2", "bf16", "bf16x2"), half.signed_fma
)
_BLOCK_ENDS = ("bra", "brx", "ret", "exit", "trap", "call")
_MOVES = ("mov.b16", "mov.u16", "mov.s16", "mov.b32", "mov.u32", "mov.s32", "mov.f32", "mov.b64", "mov.u64", "mov.s64", "mov.f64")

Lowered = LaneOp | MachineOp | None


@dataclass(eq=False)
class _Product:
    """A product, by instruction: its factors (with their PTX types), ``style`` ("ftz" or "", then how a division makes its factors),
    the sums that read it, and whether anything else does. ``is_lost``: a factor was overwritten before some sum."""

    pc: int
    op: LaneOp
    type: str
    style: tuple[str, str]
    sums: list[_Sum] = field(default_factory=list)
    is_needed: bool = False
    is_lost: bool = False


@dataclass(eq=False)
class _Sum:
    """A sum, by instruction. ``products``: the products among its two operands, with the sign they have there."""

    pc: int
    op: LaneOp
    parts: list[str]
    products: list[tuple[_Product, bool] | None] = field(default_factory=lambda: [None, None])
    chosen: int = -1


def contract(function: Function, lowered: list[Lowered]) -> tuple[Register, ...]:
    """Replace the sums that ptxas contracts among the ``lowered`` operations of a function by multiply-adds.

    Returns registers beyond those of the function: they hold factors that are overwritten between a product and its sum.
    """
    code = function.instructions
    if not any(_product_style(i) for i in code) or not any(_sum_parts(i) for i in code):
        return ()
    finder = _Finder(code, lowered)
    sequences = _sequences(function)
    exposed = _exposed(code, lowered, sequences)
    for sequence in sequences:
        finder.read(sequence, exposed)
    chosen = _choose(finder.sums)
    extra: list[Register] = []
    for product in dict.fromkeys(p for s in chosen for p, _ in [s.products[s.chosen]]):  # type: ignore[misc]
        if product.is_lost:
            lowered[product.pc], product.op = _keeping(code[product.pc], product, len(function.registers) + len(extra), extra)
    for s in chosen:
        lowered[s.pc] = _multiply_add(s)
    return tuple(extra)


# --- what is a product, what a sum ------------------------------------------------------------------------------------


def _product_style(instruction: Instruction) -> tuple[str, str] | None:
    """Return ("ftz" or "", what makes factors of the operands of a division) if an instruction is a product to contract."""
    if instruction.guard is not None or instruction.types[-1:] == () or instruction.types[-1] not in _SIGNED_FMA:
        return None
    base, modifiers = instruction.base, instruction.modifiers
    if base == "mul" and modifiers in ((), ("ftz",)):
        return "".join(modifiers), ""
    if base == "div" and instruction.types == ("f32",) and modifiers[:1] in (("approx",), ("full",)):
        ftz = "ftz" if "ftz" in modifiers else ""
        return ftz, f"{modifiers[0]}_factors{'_ftz' if ftz else ''}"
    return None


def _sum_parts(instruction: Instruction) -> list[str] | None:
    """Return the parts of the opcode of a sum that may be contracted, without the first."""
    if instruction.base not in ("add", "sub") or instruction.types[-1:] == () or instruction.types[-1] not in _SIGNED_FMA:
        return None
    if len(instruction.types) != 1 or set(instruction.modifiers) - {"ftz", "sat"}:
        return None
    return instruction.opcode.split(".")[1:]


# --- basic blocks -----------------------------------------------------------------------------------------------------


def _sequences(function: Function) -> list[list[int]]:
    """Return the instructions of each basic block; a block that only one unconditional branch leads to continues it."""
    code = function.instructions
    sources: dict[int, list[int]] = {}
    tables = {name: at for name, at in function.labels.items()}
    for names in function.branch_targets.values():
        for name in names:
            sources.setdefault(tables[name], []).append(-1)
    for k, instruction in enumerate(code):
        for operand in instruction.operands:
            if isinstance(operand, Label):
                sources.setdefault(operand.target, []).append(k)
    starts = {0} | {k for k in sources if k < len(code)} | {k + 1 for k, i in enumerate(code) if i.base in _BLOCK_ENDS}
    order = sorted(k for k in starts if k < len(code))
    ends = dict(zip(order, [*order[1:], len(code)], strict=True))
    follows: dict[int, int] = {}
    for first, end in ends.items():
        last = code[end - 1]
        is_jump = last.base == "bra" and last.guard is None and isinstance(last.operands[0], Label)
        target = last.operands[0].target if is_jump else end  # type: ignore[union-attr]
        falls = [end - 1] if not is_jump and last.base not in _BLOCK_ENDS else []
        before = code[target - 1] if 0 < target <= len(code) else None
        enters = before is not None and (before.guard is not None or before.base not in ("bra", "ret", "exit", "trap", "brx"))
        ways = len(sources.get(target, [])) + (1 if enters else 0)
        if target in ends and ways == 1 and (is_jump or falls) and target > first:
            follows[first] = target
    continued = set(follows.values())
    found = []
    for first in order:
        if first in continued:
            continue
        sequence: list[int] = []
        at: int | None = first
        while at is not None:
            sequence += range(at, ends[at])
            at = follows.get(at)
        found.append(sequence)
    return found


def _reads(op: Lowered, instruction: Instruction) -> Iterator[int]:
    operands: Sequence[Operand] = instruction.operands if op is None else [o for o, _ in op.ins]
    for operand in operands:
        if isinstance(operand, Reg):
            yield operand.register.index
    if isinstance(op, MachineOp):
        for operand in op.unscored:
            if isinstance(operand, Reg):
                yield operand.register.index
        if instruction.base in ("wgmma", "mma"):
            yield from _writes(op)


def _writes(op: Lowered) -> Iterator[int]:
    for operand in op.outs if op is not None else ():
        if isinstance(operand, Reg):
            yield operand.register.index


def _exposed(code: Sequence[Instruction], lowered: Sequence[Lowered], sequences: list[list[int]]) -> set[int]:
    """Return the registers that some block reads before it writes them: what a block leaves in them may be needed."""
    found: set[int] = set()
    for sequence in sequences:
        written: set[int] = set()
        for pc in sequence:
            found.update(r for r in _reads(lowered[pc], code[pc]) if r not in written)
            if code[pc].guard is None:
                written.update(_writes(lowered[pc]))
            else:
                found.update(r for r in _writes(lowered[pc]) if r not in written)
    return found


# --- who reads which product ------------------------------------------------------------------------------------------


class _Finder:
    """Walks blocks with the products that registers hold, and notes who reads them."""

    def __init__(self, code: Sequence[Instruction], lowered: Sequence[Lowered]):
        self.code, self.lowered = code, lowered
        self.sums: list[_Sum] = []

    def read(self, sequence: list[int], exposed: set[int]) -> None:
        holds: dict[int, tuple[_Product, bool]] = {}
        open_products: list[_Product] = []
        for pc in sequence:
            instruction, op = self.code[pc], self.lowered[pc]
            moved = self._moved(instruction, op, holds)
            if moved is None and not self._add(pc, instruction, op, holds):
                for register in _reads(op, instruction):
                    if register in holds:
                        holds[register][0].is_needed = True
            written = list(_writes(op))
            for register in written:
                if instruction.guard is not None and register in holds:
                    holds[register][0].is_needed = True
                holds.pop(register, None)
            style = _product_style(instruction)
            if style is not None and isinstance(op, LaneOp):
                product = _Product(pc, op, instruction.types[-1], style)
                open_products.append(product)
                holds[written[0]] = product, False
            elif moved is not None:
                holds[written[0]] = moved
            for product in open_products:
                if product.pc != pc or any(f in written for f in _factors(product)):
                    product.is_lost |= any(f in written for f in _factors(product))
        for register, (product, _) in holds.items():
            if register in exposed:
                product.is_needed = True

    @staticmethod
    def _moved(instruction: Instruction, op: Lowered, holds: dict[int, tuple[_Product, bool]]) -> tuple[_Product, bool] | None:
        """Return what a mov or neg of a product holds, with its sign; None if it is not one."""
        if not isinstance(op, LaneOp) or instruction.guard is not None or len(op.ins) != 1 or len(op.outs) != 1:
            return None
        source = op.ins[0][0]
        if not isinstance(source, Reg) or source.register.index not in holds or not isinstance(op.outs[0], Reg):
            return None
        product, is_negative = holds[source.register.index]
        if instruction.opcode in _MOVES:
            return product, is_negative
        is_like = instruction.modifiers == () or (instruction.modifiers == ("ftz",) and product.style[0] == "ftz")
        if instruction.base == "neg" and instruction.types == (product.type,) and is_like and product.type[:2] != "bf":
            return product, not is_negative
        return None

    def _add(self, pc: int, instruction: Instruction, op: Lowered, holds: dict[int, tuple[_Product, bool]]) -> bool:
        """Note a sum that could take a product; False if the instruction is none."""
        parts = _sum_parts(instruction)
        if parts is None or not isinstance(op, LaneOp):
            return False
        found = _Sum(pc, op, parts)
        for k, (operand, _) in enumerate(op.ins):
            if isinstance(operand, Reg) and operand.register.index in holds:
                product, is_negative = holds[operand.register.index]
                if product.type == parts[-1] and (product.style[0] == "ftz") == ("ftz" in parts):
                    found.products[k] = product, is_negative
                else:
                    product.is_needed = True
        products = [held[0] for held in found.products if held is not None]
        if len(products) == 2 and products[0] is products[1]:
            products[0].is_needed = True
            return True
        for product in products:
            product.sums.append(found)
        if products:
            self.sums.append(found)
        return True


def _factors(product: _Product) -> list[int]:
    return [o.register.index for o, _ in product.op.ins if isinstance(o, Reg)]


# --- which product goes into which sum --------------------------------------------------------------------------------


def _choose(sums: list[_Sum]) -> list[_Sum]:
    """Decide for each sum which of its operands it takes as a product; return the sums that take one."""
    known: dict[_Product, bool] = {}
    for s in sums:
        for k, held in enumerate(s.products):
            if held is not None and _goes(held[0], known):
                s.chosen = k
                break
    return [s for s in sums if s.chosen >= 0]


def _goes(product: _Product, known: dict[_Product, bool]) -> bool:
    """Does a product go into all its sums, so that it is not computed itself?"""
    if product not in known:
        known[product] = not product.is_needed
        known[product] = not product.is_needed and all(_is_preferred(s, product, known) for s in product.sums)
    return known[product]


def _is_preferred(s: _Sum, product: _Product, known: dict[_Product, bool]) -> bool:
    """Does a sum take this product, rather than its other operand?"""
    k = 0 if s.products[0] is not None and s.products[0][0] is product else 1
    held = s.products[1 - k]
    if held is None:
        return True
    mine, others = len(product.sums), len(held[0].sums)
    if mine != others:
        return mine < others or not _goes(held[0], known)
    if held[0] in known or k == 1:
        return not _goes(held[0], known)
    return True


# --- the operations ---------------------------------------------------------------------------------------------------


def _multiply_add(s: _Sum) -> LaneOp:
    held = s.products[s.chosen]
    assert held is not None
    product, is_negative = held
    is_difference = s.op.form.key.startswith("sub")
    minus_product = is_negative != (is_difference and s.chosen == 1)
    minus_addend = is_difference and s.chosen == 0
    opcode = Opcode(".".join(("fma", "rn", *s.parts)), "fma", ("rn", *s.parts))
    signs = "-" if minus_product else "", "-" if minus_addend else ""
    operation = _SIGNED_FMA[product.type](opcode, *signs)
    if product.style[1]:
        operation = replace(operation, let=(*operation.let, f"a, b = {product.style[1]}(a, b)"))
    factors = [(operand, type_) for (operand, _), type_ in zip(product.op.ins, operation.ins, strict=False)]
    addend = s.op.ins[1 - s.chosen][0], operation.ins[2]
    name = " ".join(filter(None, (opcode.text, "contracted", *signs, product.style[1])))
    return lane.bound(name, operation, s.op.outs, (*factors, addend))


def _keeping(instruction: Instruction, product: _Product, index: int, extra: list[Register]) -> tuple[LaneOp, LaneOp]:
    """Return a product that also keeps its factors in registers of their own, and its operation with those as factors."""
    plain = lane.operation(instruction.opcode)
    width = lane.width_of_type(product.type)
    kept = [Register(index + k, f"%factor{index + k}", f"b{width}") for k in range(2)]
    extra += kept
    bits = {"f32": "f32_bits({})", "f64": "f64_bits({})"}.get(product.type, "{}")
    let = tuple(f"kept_{name} = {bits.format(name)}" for name in "ab")
    operation = Operation(
        (*plain.outs, f"b{width}", f"b{width}"),
        plain.ins,
        (*plain.body, "kept_a", "kept_b"),
        plain.pipe,
        (*let, *plain.let),
        plain.style,
    )
    registers = [Reg(register) for register in kept]
    op = lane.bound(f"{instruction.opcode} keeping", operation, (*product.op.outs, *registers), product.op.ins)
    return op, replace(product.op, ins=tuple((r, type_) for r, (_, type_) in zip(registers, product.op.ins, strict=True)))
