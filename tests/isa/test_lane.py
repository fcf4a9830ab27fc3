"""From an instruction to a compiled lane operation: binding, refusals, aliasing, masks, negation, widths, packing."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from h100sim.errors import PtxError
from h100sim.isa import lane
from h100sim.native import call, jit
from h100sim.ptx.module import Address, Imm, Instruction, Operand, Pair, Reg, Register, Sink, Special, Vector

LANES = np.arange(32, dtype=np.uint32)
FULL = 0xFFFFFFFF


def register(name: str, type_: str, index: int = 0, negated: bool = False) -> Reg:
    return Reg(Register(index, name, type_), negated)


def instruction(opcode: str, *operands: Operand) -> Instruction:
    base, *parts = opcode.split(".")
    return Instruction(opcode, base, tuple(parts), (), operands, None, 7, 3)


@jit
def call_once(address, regs, mask, ops):
    return call(address, regs, mask, ops, 0)


@dataclass
class RegisterFile:
    """Rows by register name; the two ways to run a form share it."""

    bytes: np.ndarray
    offsets: dict[str, int]

    def row(self, name: str) -> np.ndarray:
        start, size, dtype = self.offsets[name]
        return self.bytes[start : start + size].view(dtype)


def register_file(**rows: np.ndarray) -> RegisterFile:
    """Return a file of rows given as uint32 or uint64 arrays; a single uint32 is a predicate."""
    offsets, position, parts = {}, 0, []
    for name, value in rows.items():
        array = np.atleast_1d(np.asarray(value))
        data = array.view(np.uint8)
        offsets[name] = (position, data.size, array.dtype)
        parts.append(data)
        padding = -data.size % 64
        parts.append(np.full(padding, 0xAB, np.uint8))
        position += data.size + padding
    return RegisterFile(np.concatenate(parts), offsets)


def names_of(op: lane.LaneOp) -> list[str]:
    return [o.register.name if isinstance(o, Reg) else getattr(o, "name", "") for o in (*op.outs, *(i for i, _ in op.ins))]


def execute(op: lane.LaneOp, file: RegisterFile, mask: int = FULL, interpreted: bool = False) -> RegisterFile:
    """Run an operation whose operands are registers (or the condition code) named like the rows of the file."""
    ops = np.array([file.offsets[name][0] for name in names_of(op)], np.int32)
    if interpreted:
        lane.interpret(op.form, file.bytes, mask, ops)
    else:
        assert call_once(lane.compile_form(op.form), file.bytes.ctypes.data, mask, ops.ctypes.data) == 0
    return file


def r(name, index=0):
    return register(name, "b32", index)


def p(name, negated=False):
    return register(name, "pred", 0, negated)


def test_binds_registers_and_immediates_with_their_types():
    op = lane.lower(instruction("add.f32", register("f1", "f32"), register("f2", "f32"), Imm(0x3F800000, "f32")))
    assert op.form.key == "add.f32"
    assert (op.form.outs, op.form.ins, op.form.pipe) == (("u32",), ("u32", "u32"), "fma")
    assert [type_ for _, type_ in op.ins] == ["f32", "f32"]
    assert hash(op.form) == hash(lane.natural_form("add.f32"))


def test_leaves_other_instructions_to_the_machine():
    for opcode in (
        "bra",
        "ld.global.b32",
        "bar.sync",
        "shfl.sync.idx.b32",
        "cvta.to.global.u64",
        "wgmma.fence.sync.aligned",
    ):
        assert lane.lower(instruction(opcode)) is None


def _no_form(opcode: str, like: str) -> str:
    return f"opcode must be a form of {opcode.split('.')[0]} that sm_90a has ({like}), not {opcode}"


@pytest.mark.parametrize(
    ("opcode", "operands", "message"),
    [
        (
            "add.foo.s32",
            3,
            _no_form("add.foo.s32", "58, among them add.s32, add.f32, add.cc.s32, add.sat.s32, add.ftz.f32, add.ftz.sat.f32"),
        ),
        (
            "min.relu.u32",
            3,
            _no_form("min.relu.u32", "43, among them min.relu.s32, min.relu.s16x2, min.u32, min.s32, min.f32, min.ftz.f32"),
        ),
        (
            "cvt.rn.f32.f32",
            2,
            _no_form(
                "cvt.rn.f32.f32",
                "860, among them cvt.rni.f32.f32, cvt.rn.tf32.f32, cvt.rna.tf32.f32, cvt.rn.f32.u32, cvt.rn.f32.s32, cvt.rzi.f32.f32",
            ),
        ),
        ("add.s32", 2, "add.s32 must have 1 destinations and 2 sources, not 1 and 1"),
        ("add.s64", 3, "register r0 of add.s64 must hold .s64, not .b32"),
        ("setp.lt.s32", 3, "register r0 of setp.lt.s32 must hold .pred, not .b32"),
    ],
)
def test_refuses_what_ptxas_refuses(opcode, operands, message):
    with pytest.raises(PtxError, match="^" + re.escape(message)) as caught:
        lane.lower(instruction(opcode, *(r(f"r{k}") for k in range(operands))))
    assert caught.value.message == message and (caught.value.line, caught.value.column) == (7, 3)


def test_refuses_a_float_register_in_an_integer_instruction():
    with pytest.raises(PtxError, match=r"^register f1 of mul\.hi\.s32 must hold \.s32, not \.f32"):
        lane.lower(instruction("mul.hi.s32", r("r1"), register("f1", "f32"), r("r2")))
    with pytest.raises(PtxError, match=r"^register f1 of add\.s32 must hold \.s32, not \.f32"):
        lane.lower(instruction("add.s32", register("f1", "f32"), r("r1"), r("r2")))
    assert lane.lower(instruction("and.b32", register("f1", "f32"), register("f2", "f32"), r("r2")))


def test_refuses_an_address_as_operand():
    with pytest.raises(PtxError, match=r"^operand of add\.s32 must be a register or a constant"):
        lane.lower(instruction("add.s32", r("r1"), r("r2"), Address(None)))


def test_modifiers_may_stand_in_any_order():
    assert lane.operation("add.sat.ftz.rz.f32") == lane.operation("add.rz.ftz.sat.f32")


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x80000001, 0x0F0F0F0F, 0])
def test_inactive_lanes_keep_their_value_and_outputs_may_be_inputs(mask, interpreted):
    op = lane.lower(instruction("add.s32", r("a"), r("a"), r("b")))
    file = execute(op, register_file(a=LANES.copy(), b=np.full(32, 100, np.uint32)), mask, interpreted)
    active = (mask >> LANES) & 1 == 1
    assert np.array_equal(file.row("a"), np.where(active, LANES + 100, LANES))


@pytest.mark.parametrize("interpreted", [False, True])
def test_predicates_merge_under_the_mask_and_may_alias(interpreted):
    op = lane.lower(instruction("setp.lt.and.s32", Pair(p("p"), p("q")), r("a"), r("b"), p("p", negated=True)))
    file = register_file(p=np.uint32(0x0000FFFF), q=np.uint32(0xF0000000), a=LANES.copy(), b=np.full(32, 20, np.uint32))
    execute(op, file, 0x00FFFFFF, interpreted)
    less, was_clear = LANES < 20, LANES >= 16
    expected_p = sum(1 << k for k in range(32) if (less[k] and was_clear[k] if k < 24 else False))
    expected_q = sum(1 << k for k in range(24) if not less[k] and was_clear[k]) | 0xF0000000
    assert (file.row("p")[0], file.row("q")[0]) == (expected_p, expected_q)


def test_negated_predicates_make_another_form():
    plain = lane.lower(instruction("selp.b32", r("d"), r("a"), r("b"), p("p")))
    negated = lane.lower(instruction("selp.b32", r("d"), r("a"), r("b"), p("p", negated=True)))
    assert plain.form.key == "selp.b32" and negated.form.key == "selp.b32 !c"
    rows = {"d": np.zeros(32, np.uint32), "a": LANES, "b": LANES + 100, "p": np.uint32(0xFFFF)}
    assert np.array_equal(execute(plain, register_file(**rows)).row("d")[:16], LANES[:16])
    assert np.array_equal(execute(negated, register_file(**rows)).row("d")[:16], LANES[:16] + 100)


def test_logic_on_predicates_works_on_whole_masks():
    op = lane.lower(instruction("xor.pred", p("d"), p("a"), p("b", negated=True)))
    file = execute(op, register_file(d=np.uint32(0), a=np.uint32(0x00FF00FF), b=np.uint32(0x0000FFFF)), 0xFFFFFF)
    assert file.row("d")[0] == (0x00FF00FF ^ ~0x0000FFFF & 0xFFFFFFFF) & 0xFFFFFF


@pytest.mark.parametrize("interpreted", [False, True])
def test_mov_packs_and_unpacks(interpreted):
    wide = LANES.astype(np.uint64) << np.uint64(36) | np.uint64(5)
    unpack = lane.lower(instruction("mov.b64", Vector((r("lo"), r("hi"))), register("d", "b64")))
    file = execute(unpack, register_file(lo=np.zeros(32, np.uint32), hi=np.zeros(32, np.uint32), d=wide), interpreted=interpreted)
    assert np.array_equal(file.row("lo"), np.full(32, 5)) and np.array_equal(file.row("hi"), LANES << 4)
    pack = lane.lower(instruction("mov.b64", register("d", "b64"), Vector((r("hi"), r("lo")))))
    execute(pack, file, interpreted=interpreted)
    assert np.array_equal(file.row("d"), np.uint64(5 << 32) | (LANES.astype(np.uint64) << np.uint64(4)))


def test_mov_unpacks_four_halves_and_b128():
    halves = lane.lower(instruction("mov.b64", Vector(tuple(register(n, "b16") for n in "wxyz")), register("d", "b64")))
    rows = {n: np.zeros(32, np.uint32) for n in "wxyz"}
    file = execute(halves, register_file(**rows, d=np.full(32, 0x4444333322221111, np.uint64)))
    assert [hex(file.row(n)[7]) for n in "wxyz"] == ["0x1111", "0x2222", "0x3333", "0x4444"]
    pair = Vector((register("lo", "b64"), register("hi", "b64")))
    pack = lane.lower(instruction("mov.b128", register("q", "b128"), pair))
    assert pack.form.outs == ("u128",)
    values = np.arange(32, dtype=np.uint64)
    file = register_file(q=np.zeros(64, np.uint64), lo=values, hi=values + np.uint64(1000))
    execute(pack, file, 0x7FFFFFFF)
    assert np.array_equal(file.row("q")[:31], values[:31]) and np.array_equal(file.row("q")[32:63], values[:31] + np.uint64(1000))
    assert file.row("q")[31] == file.row("q")[63] == 0


def test_mov_refuses_a_vector_that_does_not_fit():
    with pytest.raises(PtxError, match=r"^vector of mov\.b32 must have 2 or 4 elements that fill it, not 3"):
        lane.lower(instruction("mov.b32", r("d"), Vector((r("a"), r("b"), r("c")))))


def test_mov_takes_special_registers_and_sinks():
    op = lane.lower(instruction("mov.u32", r("d"), Special("tid.x")))
    assert op.ins == ((Special("tid.x"), "u32"),)
    op = lane.lower(instruction("mov.b64", Vector((Sink(), r("hi"))), register("d", "b64")))
    assert op.outs[0] == Sink() and op.form.outs == ("u32", "u32")


@pytest.mark.parametrize("interpreted", [False, True])
def test_carry_chains_add_128_bits(interpreted):
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2**32, (2, 4, 32), dtype=np.uint64).astype(np.uint32)
    a[0, :8], b[0, :8] = 0xFFFFFFFF, 1
    file = register_file(
        cc=np.uint32(0), **{f"a{k}": a[k] for k in range(4)}, **{f"b{k}": b[k] for k in range(4)},
        **{f"d{k}": np.zeros(32, np.uint32) for k in range(4)},
    )  # fmt: skip
    for k, opcode in enumerate(("add.cc.u32", "addc.cc.u32", "addc.cc.u32", "addc.u32")):
        op = lane.lower(instruction(opcode, r(f"d{k}"), r(f"a{k}"), r(f"b{k}")))
        assert (Special("cc") in op.outs) == (k < 3) and ((Special("cc"), "pred") in op.ins) == (k > 0)
        execute(op, file, interpreted=interpreted)
    for x in range(32):
        whole = [sum(int(rows[k][x]) << 32 * k for k in range(4)) for rows in (a, b, [file.row(f"d{k}") for k in range(4)])]
        assert whole[2] == (whole[0] + whole[1]) % 2**128


def test_borrow_and_multiply_chains():
    file = register_file(cc=np.uint32(0), a=np.uint32([0] * 32), b=np.uint32([1] * 32), d=np.zeros(32, np.uint32))
    execute(lane.lower(instruction("sub.cc.u32", r("d"), r("a"), r("b"))), file)
    assert file.row("d")[0] == 0xFFFFFFFF and file.row("cc")[0] == 0, "the carry is the inverse of the borrow"
    execute(lane.lower(instruction("subc.u32", r("d"), r("b"), r("a"))), file)
    assert file.row("d")[0] == 0
    file.row("a")[:], file.row("b")[:] = 0xFFFFFFFF, 0xFFFFFFFF
    execute(lane.lower(instruction("mad.hi.cc.u32", r("d"), r("a"), r("b"), r("a"))), file)
    assert file.row("d")[0] == 0xFFFFFFFD and file.row("cc")[0] == 0xFFFFFFFF


def test_cvt_registers_may_be_wider_than_the_types():
    op = lane.lower(instruction("cvt.s16.s8", r("d"), register("a", "b64")))
    assert (op.form.outs, op.form.ins) == (("u32",), ("u64",))
    file = execute(op, register_file(d=np.zeros(32, np.uint32), a=np.full(32, 0x1234567890ABCD80, np.uint64)))
    assert file.row("d")[0] == 0xFFFFFF80
    op = lane.lower(instruction("cvt.u8.u32", register("d", "b16"), r("a")))
    file = execute(op, register_file(d=np.full(32, 0xFFFF, np.uint32), a=np.full(32, 0x12345678, np.uint32)))
    assert file.row("d")[0] == 0x78


def test_cvt_of_bf16_takes_registers_of_its_own_width_only():
    with pytest.raises(PtxError, match=r"^register r0 of cvt\.rn\.bf16\.f64 must hold \.b16, not \.b32"):
        lane.lower(instruction("cvt.rn.bf16.f64", r("r0"), register("r1", "f64")))


def test_lop3_with_a_predicate_result():
    op = lane.lower(instruction("lop3.or.b32", Pair(r("d"), p("p")), r("a"), r("b"), r("c"), Imm(0x80), p("q")))
    assert op.form.key == "lop3.or.b32=128 2<-4"
    file = register_file(d=LANES * 0, p=np.uint32(0), a=LANES, b=LANES, c=LANES, q=np.uint32(1))
    execute(op, file)
    assert np.array_equal(file.row("d"), LANES) and file.row("p")[0] == 0xFFFFFFFF


def test_keys_are_unique_for_their_texts():
    seen = {}
    for opcodes in lane.forms().values():
        for opcode in opcodes[:: max(1, len(opcodes) // 40)]:
            if not opcode.startswith("lop3"):
                form = lane.natural_form(opcode)
                assert seen.setdefault(form.key, form.text) == form.text
                assert form.pipe in lane.PIPES


def test_every_opcode_has_an_operation():
    assert sum(map(len, lane.forms().values())) > 4500
    for opcodes in lane.forms().values():
        for opcode in opcodes:
            if not opcode.startswith("lop3"):
                op = lane.operation(opcode)
                assert op.outs and len(op.body) >= len(op.outs) and op.style in ("vector", "serial", "mask")
