"""The strategies that users' tests draw from, and how Hypothesis comes to know them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h100sim.layouts import Layout, MatrixDescriptor, operand_addresses, wavefronts
from h100sim.strategies import lane_addresses, layouts, matrix_descriptors, swizzles
from h100sim.tma import TensorMap

ROOT = Path(__file__).parent.parent
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@given(st.from_type(TensorMap), st.from_type(MatrixDescriptor), st.from_type(Layout))
def test_hypothesis_knows_the_types(m, descriptor, layout):
    assert TensorMap.decode(bytes(m)) == m
    assert MatrixDescriptor.decode(descriptor.encode()) == descriptor
    assert Layout.parse(str(layout)) == layout


@given(matrix_descriptors(), st.booleans())
def test_every_descriptor_has_addresses(descriptor, transpose):
    found = operand_addresses("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", "b", descriptor, transpose)
    assert found.shape == (16, 16) and found.min() >= 0


@given(lane_addresses(8), swizzles())
def test_lanes_give_legal_addresses(addresses, _):
    taken, least = wavefronts(addresses, 8)
    assert 1 <= least <= taken <= 32


@given(layouts(injective=True))
def test_injective_layouts_hit_no_offset_twice(layout):
    assert len(set(layout.offsets())) == layout.size


def test_the_entry_point_is_there():
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["hypothesis"]["h100sim"]
    module, _, function = entry.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("first", ["import hypothesis; import h100sim.tma", "import h100sim.tma; import hypothesis"])
def test_the_types_are_known_in_either_order(first):
    hook = "from h100sim.hypothesis_entry_point import register; register()"
    code = (
        f"{first}; from hypothesis import strategies as st; {hook}\n"
        "from h100sim.tma import TensorMap; print(repr(st.from_type(TensorMap)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "tiled_maps" in done.stdout, done.stderr


def test_hypothesis_alone_imports_no_compiler():
    code = "import hypothesis, sys; from h100sim.hypothesis_entry_point import register; register(); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
