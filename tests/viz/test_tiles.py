"""Where elements of a shared tile lie, and when a tile changes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from h100sim.errors import UsageError
from h100sim.trace import Event
from viz.tiles import DTYPE_BYTES, Tile, element_addresses, tiles_of, versions

tiles = st.builds(
    lambda dtype, swizzle, panels, rows, slot: Tile(
        "t", 1024 * slot, 8 * rows, panels * max(swizzle, 32) // DTYPE_BYTES[dtype], dtype, swizzle
    ),
    st.sampled_from(sorted(DTYPE_BYTES)),
    st.sampled_from([0, 32, 64, 128]),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(0, 200),
)


@given(tiles)
def test_addresses_cover_the_tile_exactly_once(tile):
    addresses = np.sort(element_addresses(tile).ravel())
    assert (addresses == tile.offset + tile.element_bytes * np.arange(tile.rows * tile.cols)).all()


@given(tiles)
def test_swizzle_moves_whole_16_byte_chunks(tile):
    addresses = element_addresses(tile)
    per_chunk = 16 // tile.element_bytes
    chunks = addresses.reshape(tile.rows, tile.cols // per_chunk, per_chunk)
    assert (chunks - chunks[..., :1] == tile.element_bytes * np.arange(per_chunk)).all()


def test_rows_of_a_column_of_chunks_fall_into_all_eight_bank_groups():
    addresses = element_addresses(Tile("t", 0, 64, 64, "bf16", 128))
    assert set((addresses[:8, 0] >> 4) & 7) == set(range(8))
    assert [hex(a) for a in addresses[1, [0, 8]]] == ["0x90", "0x80"]


def test_a_wide_tile_is_stored_as_column_panels():
    addresses = element_addresses(Tile("t", 0, 64, 128, "bf16", 128))
    assert addresses[0, 64] == 64 * 128


def test_a_tile_changes_when_a_copy_into_it_completes(recording):
    tile = next(t for t in recording.tiles if t.name == "a[1]")
    steps = recording.steps[versions(tile, recording.steps, recording.lanes)]
    assert (steps["kind"] == Event.TMA_COMPLETED).all()
    assert (steps["c"] == tile.offset).all() and len(steps) == 2


def test_a_tile_changes_when_lanes_store_into_it_and_not_when_a_copy_reads_it(recording):
    tile = next(t for t in recording.tiles if t.name == "c[0]")
    steps = recording.steps[versions(tile, recording.steps, recording.lanes)]
    assert len(steps) == 16 and (steps["kind"] == Event.MEMORY).all()


def test_without_names_the_regions_of_copies_are_shown(trace, recording):
    nameless = dataclasses.replace(trace.kernel, tiles=())
    regions = tiles_of(nameless, recording.copies)
    assert len(regions) == 10 and all(region.is_region for region in regions)
    assert regions[0].name == "0x800, 16,384 bytes"


def test_unknown_element_type_is_refused(trace):
    entry = {**trace.kernel.tiles[0], "dtype": "e3m0"}
    with pytest.raises(UsageError, match=r"^tile a dtype must be one of .*, not e3m0$"):
        tiles_of(dataclasses.replace(trace.kernel, tiles=(entry,)), np.zeros(0))
