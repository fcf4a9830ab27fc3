from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from h100sim.errors import PtxError, UsageError
from h100sim.layouts.descriptor import MODES, MatrixDescriptor, gather_operand, operand_addresses
from h100sim.strategies import matrix_descriptors

DATA = Path(__file__).parent.parent / "data" / "wgmma_descriptors.npz"
CAPTURED = np.load(DATA)
KEYS = [key for key in CAPTURED.files if key[0] in "AB" and not key.endswith("_configs")]
OPCODES = {"f16": "m64n{}k16.f32.f16.f16", "u8": "m64n{}k32.s32.u8.u8", "tf32": "m64n{}k8.f32.tf32.tf32"}


def opcode(element: str, columns: int) -> str:
    return "wgmma.mma_async.sync.aligned." + OPCODES[element].format(columns)


def captured(key: str):
    """Yield (descriptor, addresses (rows, K)) of every configuration of a capture."""
    operand = CAPTURED[key]
    for config, addresses in zip(CAPTURED[key + "_configs"].tolist(), operand, strict=True):
        mode, leading, stride, start, base = config
        descriptor = MatrixDescriptor(start, leading, stride, MODES[mode], base)
        yield descriptor, addresses.T if key[0] == "B" else addresses


@pytest.mark.parametrize("key", KEYS)
def test_every_element_of_every_captured_configuration(key):
    which, element, transpose, *columns = key.split("_")
    instr = opcode(element, int(columns[0][1:]) if columns else 64)
    for descriptor, expected in captured(key):
        found = operand_addresses(instr, which.lower(), descriptor.encode(), transpose == "t1")
        assert np.array_equal(found, expected), descriptor


def test_the_captures_are_all_there():
    assert sum(len(CAPTURED[key]) for key in KEYS) == 849


@pytest.mark.parametrize("key", ["A_f16_t1", "B_u8_t0_n64", "B_tf32_t0_n64"])
def test_gathering_reads_the_bits_at_the_captured_addresses(key):
    if key not in KEYS:
        pytest.skip("no such capture")
    size = {"f16": 2, "u8": 1, "tf32": 4}[key.split("_")[1]]
    smem = np.random.default_rng(1).integers(0, 256, 1 << 18, np.uint8)
    for descriptor, addresses in captured(key):
        out = np.zeros(addresses.shape, np.uint32)
        signed = np.uint64(descriptor.encode()).astype(np.int64)
        assert gather_operand(signed, "_t1" in key, size, smem, out) == -1
        assert np.array_equal(out, sum(smem[addresses + b].astype(np.uint32) << (8 * b) for b in range(size)))


def test_gathering_names_the_first_address_outside():
    descriptor = MatrixDescriptor(1024, 16, 1024, "128B")
    out = np.zeros((64, 16), np.uint32)
    assert gather_operand(np.uint64(descriptor.encode()).astype(np.int64), False, 2, np.zeros(4096, np.uint8), out) == 4096


@given(matrix_descriptors())
def test_decode_undoes_encode(descriptor):
    assert MatrixDescriptor.decode(descriptor.encode()) == descriptor


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transpose", [False, True])
def test_a_dense_tile_uses_every_address_once(mode, transpose):
    span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[mode]
    if transpose:
        packing = (1024, 128) if mode == "none" else (2 * 8 * span, 8 * span)
        leading, stride = packing if mode != "none" else (1024, 128)
        rows = 64
    else:
        leading, stride = (1024, 128) if mode == "none" else (16, 8 * span)
        rows = 64
    found = operand_addresses(opcode("f16", 64), "b", MatrixDescriptor(0, leading, stride, mode), transpose)
    assert len(np.unique(found)) == rows * 16


def test_only_16_bit_operands_may_be_transposed():
    with pytest.raises(PtxError, match=r"^wgmma operand B of u8 must be K-major \(imm-trans 0\), not transposed"):
        operand_addresses(opcode("u8", 64), "b", 0, transpose=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((8,), "descriptor start_address must be a multiple of 16 from 0 to 262,128, not 8"),
        ((0, 0, 1 << 18), "descriptor stride_byte_offset must be a multiple of 16 from 0 to 262,128, not 262144"),
        ((0, 0, 0, "96B"), "descriptor swizzle must be one of none, 128B, 64B, 32B, not 96B"),
        ((0, 0, 0, "none", 8), "descriptor base_offset must be from 0 to 7, not 8"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(UsageError) as error:
        MatrixDescriptor(*fields)
    assert error.value.message == message
