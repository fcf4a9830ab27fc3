"""The probes that ask for bits: every answer of the simulator is that of an H200."""

from __future__ import annotations

import pytest

from validate import probes

#: Probe -> how many answers there are at least.
PROBES = {
    "cache_policies": 228,
    "cluster_store_bits": 59,
    "sparse_wgmma_bits": 22,
    "tensor_map_fields": 380,
    "wmma_bits": 129,
}


@pytest.mark.parametrize("name", PROBES)
def test_every_answer_is_that_of_silicon(name):
    silicon = probes.silicon_answer(name)
    assert silicon is not None and silicon["card"].startswith("NVIDIA H")
    here = probes.ask(name, "sim")["results"]
    assert len(here) >= PROBES[name]
    assert {key: value for key, value in here.items() if value != silicon["results"].get(key)} == {}
