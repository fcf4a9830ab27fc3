import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim.errors import OutOfRange, UsageError
from h100sim.memory.global_memory import GAP, GlobalMemory


def test_an_array_comes_back_as_it_went():
    memory = GlobalMemory()
    for array in (
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.ones((2, 3), ml_dtypes.bfloat16),
        np.float64(2.5),
    ):
        address = memory.upload(array)
        assert address % 512 == 0
        back = memory.download(address, like=np.asarray(array))
        assert back.dtype == np.asarray(array).dtype and np.array_equal(back, array)


def test_addresses_survive_growth():
    memory = GlobalMemory()
    first = memory.upload(np.arange(1000), name="first")
    big = memory.allocate(5 << 20, name="big")
    assert len(memory.arena) > 5 << 20
    assert np.array_equal(memory.download(first, like=np.arange(1000)), np.arange(1000))
    assert not memory.view(big, 5 << 20).any()


@given(st.lists(st.tuples(st.integers(1, 300_000), st.booleans()), max_size=40))
def test_allocations_never_touch(requests):
    memory, held = GlobalMemory(), []
    for size, frees_one in requests:
        if frees_one and held:
            memory.free(held.pop(0))
        held.append(memory.allocate(size))
    assert np.array_equal(memory.starts, np.sort(memory.starts))
    assert (memory.starts % 512 == 0).all()
    assert (memory.starts[1:] - memory.ends[:-1] >= GAP).all()
    assert memory.ends.max(initial=memory.base) <= memory.base + len(memory.arena)


def test_memory_that_is_given_back_is_used_again():
    memory = GlobalMemory()
    for _ in range(100):
        memory.free(memory.allocate(200_000))
    assert len(memory.arena) == 1 << 20


@pytest.mark.parametrize(
    ("offset", "size", "where"),
    [
        (512, 4, "just past the end of 'C' (512 bytes at 0x7f0000000000)"),
        (528, 4, "16 bytes past the end of 'C' (512 bytes at 0x7f0000000000)"),
        (510, 4, "which ends 2 bytes past the end of 'C' (512 bytes at 0x7f0000000000)"),
        (-1, 1, "1 byte before the start of 'C' (512 bytes at 0x7f0000000000)"),
    ],
)
def test_a_stray_address_is_told_from_the_nearest_allocation(offset, size, where):
    memory = GlobalMemory()
    address = memory.allocate(512, name="C")
    with pytest.raises(OutOfRange) as error:
        memory.view(address + offset, size)
    assert error.value.message.endswith(where)
    assert error.value.message.startswith(f"address must lie in an allocation, not {address + offset:#x} ({size} byte")


def test_freed_memory_is_named():
    memory = GlobalMemory()
    address = memory.upload(np.zeros(8), name="scores")
    memory.free(address)
    with pytest.raises(OutOfRange, match=r"8 bytes into 'scores' \(64 bytes at 0x7f0000000000\), which was freed$"):
        memory.view(address + 8, 4)
    with pytest.raises(UsageError, match=r"^address to free must be the start of a live allocation, .* freed$"):
        memory.free(address)


def test_an_allocation_that_the_host_cannot_hold_is_refused():
    with pytest.raises(
        UsageError, match=r"^allocation 'x' must fit the memory of this machine, not 1,152,921,504,606,846,976 bytes$"
    ):
        GlobalMemory().allocate(1 << 60, name="x")


def test_an_empty_allocation_is_refused():
    with pytest.raises(UsageError, match=r"^allocation 'x' must be at least 1 byte, not 0$"):
        GlobalMemory().allocate(0, name="x")
