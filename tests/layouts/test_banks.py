"""Wavefronts of accesses to shared memory: the rule against silicon, and what the rule means."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim.errors import UsageError
from h100sim.layouts.banks import SCRATCH_WORDS, banks, packets, wavefronts
from h100sim.strategies import lane_addresses
from validate.probes import SILICON
from validate.probes.shared_patterns import patterns
from validate.probes.shared_wavefronts import ACCESSES

CAPTURED = json.loads((SILICON / "shared_wavefronts.json").read_text())["results"]
LANES = range(32)


@pytest.mark.parametrize("name", [name for name in CAPTURED if "async" not in name])
def test_silicon_takes_as_many_cycles_as_we_count_wavefronts(name):
    """The probe's slope is a mean over 8,192 accesses; 16-byte loads take up to half a cycle more."""
    access = ACCESSES[name]
    kind = "matrix" if access.is_matrix else "load" if access.is_load else "store"
    asked = patterns(access.width_bytes)
    assert list(asked) == list(CAPTURED[name]) and len(asked) >= 73
    wrong = {}
    for pattern, cycles in CAPTURED[name].items():
        addresses = asked[pattern]
        if access.is_matrix:
            addresses = np.maximum(addresses, 0)[: 8 * access.registers]
        counted, _ = wavefronts(addresses.tolist(), access.width_bytes, kind)
        if abs(cycles - counted) > 0.25 + 0.25 * (name == "ld.b128"):
            wrong[pattern] = (cycles, counted)
    assert not wrong


#: Cycles of a packet, the slope of all patterns.
PACKET_CYCLES = 1.571


@pytest.mark.parametrize("name", [name for name in CAPTURED if "async" in name])
def test_a_store_across_the_cluster_takes_as_many_packets(name):
    access = ACCESSES[name]
    asked, scratch = patterns(access.width_bytes), np.empty(SCRATCH_WORDS, np.int32)
    assert list(asked) == list(CAPTURED[name]) and len(asked) >= 73
    error = {
        pattern: packets(asked[pattern].astype(np.int64), access.width_bytes, scratch) * PACKET_CYCLES / cycles - 1
        for pattern, cycles in CAPTURED[name].items()
        if (asked[pattern] >= 0).sum() > 1
    }
    sizes = np.abs(list(error.values()))
    assert np.median(sizes) < 0.015 and np.percentile(sizes, 80) < 0.12 and sizes.max() < 0.31


@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        ([4 * lane for lane in LANES], 4, 4),
        ([16 * lane for lane in LANES], 16, 16),
        ([8 * lane for lane in LANES], 4, 16),
        ([128 * lane for lane in LANES], 4, 32),
        ([4 * (lane // 2) for lane in LANES], 4, 4),
        ([0] * 32, 4, 64),
        ([0] + [-1] * 31, 4, 2),
    ],
)
def test_packets_of_the_cluster(addresses, width, expected):
    assert packets(np.array(addresses, np.int64), width, np.empty(SCRATCH_WORDS, np.int32)) == expected


@pytest.mark.parametrize(
    ("addresses", "width", "kind", "expected"),
    [
        ([4 * lane for lane in LANES], 4, "load", (1, 1)),
        ([128 * lane for lane in LANES], 4, "load", (32, 1)),
        ([0] * 32, 4, "store", (1, 1)),
        ([lane for lane in LANES], 1, "store", (1, 1)),
        ([8 * lane for lane in LANES], 8, "load", (2, 2)),
        ([8 * (lane // 2) for lane in LANES], 8, "load", (1, 1)),
        ([8 * (lane // 2) for lane in LANES], 8, "store", (2, 2)),
        ([8 * (lane % 16) for lane in LANES], 8, "load", (2, 2)),
        ([0] * 32, 16, "load", (2, 2)),
        ([0] * 32, 16, "store", (4, 4)),
        ([0], 16, "load", (2, 2)),
        ([16 * lane for lane in range(8)], 16, "load", (4, 4)),
        ([128 * row for row in range(8)], 16, "matrix", (8, 1)),
        ([144 * row for row in LANES], 16, "matrix", (4, 4)),
    ],
)  # fmt: skip
def test_what_the_rule_says(addresses, width, kind, expected):
    assert wavefronts(addresses, width, kind) == expected


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from(["load", "store"]), st.data())
def test_the_picture_and_the_count_agree(width, kind, data):
    addresses = data.draw(lane_addresses(width))
    groups = banks(addresses, width, kind)
    counted = sum(max((len(words) for words in group.values()), default=1) for group in groups)
    assert wavefronts(addresses, width, kind) == (counted, len(groups))
    # A lower bound that needs no groups: no bank gives two words in a wavefront.
    words = {word for group in groups for held in group.values() for word in held}
    assert counted >= max(np.bincount([word % 32 for word in words], minlength=1), default=0)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (([0], 3), "access width must be 1, 2, 4, 8 or 16 bytes, not 3"),
        (([0] * 33, 4), "addresses must be of 1 to 32 lanes, not 33"),
        (([0, 2], 4), "address of lane 1 must be a multiple of 4, not 0x2"),
        (([0], 4, "atomic"), "kind of access must be one of load, store, matrix, not atomic"),
        (([0] * 9, 16, "matrix"), "matrix access must be 8, 16 or 32 rows of 16 bytes, not 9 of 16"),
    ],
)
def test_accesses_that_there_are_not(given_, message):
    with pytest.raises(UsageError) as error:
        wavefronts(*given_)
    assert error.value.message == message
