"""The probes that ask for bits: every answer of the simulator is that of an H200."""

from __future__ import annotations

import pytest

from validate import probes

#: Probe -> how many answers there are at least.
PROBES = {
    "cache_policies": 228,
    "cluster_store_bits": 59,
    "sparse_wgmma_bits": 22,
    "store_conflicts": 242,
    "tensor_map_fields": 380,
    "wmma_bits": 177,
}


@pytest.mark.parametrize("name", PROBES)
def test_every_answer_is_that_of_silicon(name):
    silicon = probes.silicon_answer(name)
    assert silicon is not None and silicon["card"].startswith("NVIDIA H")
    here = probes.ask(name, "sim")["results"]
    assert len(here) >= PROBES[name]
    assert {key: value for key, value in here.items() if value != silicon["results"].get(key)} == {}


#: Where this simulator stops with an error and silicon goes on without a word.
STRICTER = {"bulk load of 24 bytes", *(f"wait with parity {parity}" for parity in (2, 3, 0xFFFFFFFE))}


def test_undefined_operands_do_what_silicon_does():
    silicon = probes.silicon_results("tma_limits")
    here = probes.ask("tma_limits", "sim")["results"]
    assert len(here) == len(silicon) >= 33
    different = {}
    for name, found in here.items():
        expected = silicon[name]
        same = "error" in found if "failed" in expected else found == expected
        if not same:
            different[name] = (found, expected)
    assert set(different) == STRICTER
    assert all("error" in found for found, _ in different.values())
