"""All inputs of an instruction against the checksums of an H200: a few blocks of 2^24 of every opcode that was captured.

`python -m validate exhaustive all` compares every block.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from h100sim.errors import UsageError
from h100sim.numerics.scalar import scalar
from validate import exhaustive, probes

#: Opcodes of which something was wrong before all of their inputs were tried, and where: the blocks to look at.
FOUND = {"rcp.rm.ftz.f32": [126, 254], "rcp.rp.ftz.f32": [126, 254], "mul.ftz.f16": [4, 100, 187]}


def test_every_opcode_was_captured():
    captured = exhaustive.silicon()
    assert list(captured) == list(exhaustive.OPCODES)
    assert all(len(sums) == exhaustive.BLOCKS for sums in captured.values())


@pytest.mark.parametrize("opcode", exhaustive.OPCODES)
def test_a_block_of_every_opcode_is_that_of_silicon(opcode):
    blocks = FOUND.get(opcode, [zlib.crc32(opcode.encode()) % exhaustive.BLOCKS])
    assert exhaustive.differing_blocks(opcode, blocks) == []


def test_the_checksum_is_the_one_that_the_docstring_describes():
    inputs = np.arange(1 << 24, dtype=np.uint32) | np.uint32(0x41 << 24)
    v = scalar("popc.b32", inputs).astype(np.uint64) + inputs * np.uint64(exhaustive._INPUT_FACTOR)
    v *= np.uint64(exhaustive._RESULT_FACTOR)
    v ^= v >> np.uint64(29)
    assert exhaustive.checksums("popc.b32", [0x41]) == [int((v * np.uint64(exhaustive._SUM_FACTOR)).sum())]


def test_the_kernel_computes_the_same_checksum_here():
    launcher, _ = probes._launcher("sim")
    opcode = "cvt.rni.s16.f32"
    assert exhaustive.measure(launcher, opcode, blocks=1) == exhaustive.checksums(opcode, [0])


def test_an_opcode_that_was_not_captured_is_named():
    with pytest.raises(UsageError, match=r"^opcode must be one that was captured \(.*\), not add\.f32$"):
        exhaustive.differing_blocks("add.f32")
