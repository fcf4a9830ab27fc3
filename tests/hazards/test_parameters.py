"""Parameters that the driver or the hardware refuses. Each has a control that is accepted."""

from __future__ import annotations

import programs as p
import pytest
from programs import arrive_tx, build, bulk_commit, bulk_wait, by_thread, fence_async, inits, load, role, run, sync, wait, write

from h100sim.errors import DeadlockError, IllegalInstruction, LaunchError, OutOfRange, PtxError, TensorMapError
from h100sim.tma import TensorMap

GOOD = {"dtype": "bf16", "address": 1 << 20, "dims": (512, 64), "strides": (1024,), "box": (64, 64)}


@pytest.mark.parametrize(
    "case, wrong, right, message",
    [
        ("C73", {"dims": (511, 64), "strides": (1022,)}, {"dims": (511, 64)}, r"strides\[0\] must be a multiple of 16 bytes"),
        ("C73", {"address": (1 << 20) + 2}, {}, "address must be a multiple of 16"),
        (
            "C73",
            {"dtype": "u8", "dims": (1000, 64), "strides": (1000,)},
            {"dtype": "u8", "dims": (1000, 64), "strides": (1008,)},
            "16",
        ),
        (
            "C76",
            {"box": (128, 128), "swizzle": "128B"},
            {"box": (64, 128), "swizzle": "128B"},
            "must be at most 128 bytes, not 256",
        ),
        ("C76", {"box": (48, 64), "swizzle": "64B"}, {"box": (32, 64), "swizzle": "64B"}, "must be at most 64 bytes, not 96"),
        ("C77", {"box": (512, 64)}, {"box": (256, 64)}, "must be from 1 to 256, not 512"),
        ("C78", {"box": (4, 64)}, {"box": (8, 64)}, "must be a multiple of 16 bytes, not 8"),
        ("C78", {"box": (12, 64)}, {"box": (16, 64)}, "must be a multiple of 16 bytes, not 24"),
        ("C79", {"dims": (512, 0)}, {"dims": (512, 1)}, r"dims\[1\] must be from 1 to"),
    ],
)
def test_tensor_maps_that_the_driver_refuses(case: str, wrong: dict, right: dict, message: str) -> None:
    with pytest.raises(TensorMapError, match=message):
        TensorMap.tiled(**GOOD | wrong)
    TensorMap.tiled(**GOOD | right)


def test_a_bulk_copy_whose_size_is_no_multiple_of_16() -> None:
    """C82: 63 floats."""

    def program(size: int) -> str:
        return build(start=[write(0), fence_async(), sync(), *by_thread(0, p.store(0, size), bulk_commit(), bulk_wait())])

    error = run(program(252), 128).error
    assert isinstance(error, IllegalInstruction) and "size must be a multiple of 16, not 252" in error.message
    assert run(program(256), 128).is_clean


def test_a_bulk_copy_behind_the_end_of_an_array() -> None:
    """C83: there is no clipping; and a copy that is left out where its wait is not."""

    def program(row: int, rows: int, predicated: bool) -> str:
        steps = [f"add.u64 %source, %source, {row * 4096};", arrive_tx(0, 4096), *load(0, 0, 4096)]
        return build(role(0, 0, steps if row < rows or not predicated else [], wait(0, 0)), start=inits(1))

    rows = (1 << 16) // 4096
    assert isinstance(run(program(rows, rows, False), 32).error, OutOfRange)
    assert isinstance(run(program(rows, rows, True), 32).error, DeadlockError)
    assert run(program(rows - 1, rows, True), 32).is_clean


def test_fp8_operands_must_be_k_major() -> None:
    """C71: there are no transpose bits for types of other than 16 bits."""

    def program(types: str, k: int, trailing: str) -> str:
        fill = [write(0), write(p.TILE), fence_async(), sync()]
        multiply = [step.replace("m64n8k16.f32.bf16.bf16", f"m64n8k{k}.f32.{types}") for step in p.wgmma(0, p.TILE)]
        multiply = [step.replace("0, 1, 1, 0, 0;", trailing) for step in multiply]
        return build(role(0, 127, fill, p.wgmma_fence(), multiply, p.commit(), p.wait_group()))

    with pytest.raises(PtxError, match=r"operands of e4m3 must be K-major"):
        run(program("e4m3.e4m3", 32, "0, 1, 1, 0, 1;"), 128)
    assert run(program("e4m3.e4m3", 32, "0, 1, 1;"), 128).error is None
    assert run(program("bf16.bf16", 16, "0, 1, 1, 0, 1;"), 128).error is None


def test_shared_memory_beyond_what_was_asked_for_or_exists() -> None:
    """C102."""
    import numpy as np

    import h100sim

    function = h100sim.RawModule(code=build()).get_function("kernel")
    arrays = [np.zeros(4, np.uint32), np.zeros(4, np.uint32)]
    with pytest.raises(LaunchError, match="max_dynamic_shared_size_bytes"):
        function((1,), (32,), arrays, shared_mem=49_153)
    function.max_dynamic_shared_size_bytes = 232_448
    function((1,), (32,), arrays, shared_mem=49_153)
    with pytest.raises(LaunchError, match="shared memory of a CTA must be at most 232,448 bytes"):
        function((1,), (32,), arrays, shared_mem=246_784)


def test_a_leader_that_a_block_smaller_than_a_warp_does_not_have() -> None:
    """C38: nobody loads, so the wait finds nothing; the smaller block has lane 0 as its leader."""

    def program(leader: str) -> str:
        guarded = [leader, f"@%p3 {arrive_tx(0)}", *[s if s.startswith("add") else f"@%p3 {s}" for s in load(0, 0)]]
        return build(start=[*inits(1), *guarded, wait(0, 0), "ld.shared.u32 %r1, [%smem];"])

    nobody = program("setp.eq.u32 %p3, %tid, 16;")
    error = run(nobody, 16).error
    assert isinstance(error, DeadlockError)
    assert any("nobody has ever arrived on mbarrier 0x7c00" in line for line in error.waits)
    assert run(program("setp.eq.u32 %p3, %tid, 0;"), 16).is_clean
