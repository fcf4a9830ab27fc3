"""Tables whose memory an earlier launch has used."""

import numpy as np
import pytest

from h100sim import spare_tables
from tests.kernels import STORE_THREAD, entry, launch, zeros

SIZE = spare_tables.LEAST


@pytest.fixture(autouse=True)
def nothing_spare(monkeypatch):
    monkeypatch.setattr(spare_tables, "_spare", {})


def test_a_buffer_is_given_once_and_only_for_its_name_and_size():
    buffer = np.zeros(SIZE, np.uint8)
    spare_tables.give("registers", buffer)
    assert spare_tables.take("shared", SIZE) is None
    assert spare_tables.take("registers", SIZE) is buffer
    assert spare_tables.take("registers", SIZE) is None
    spare_tables.give("registers", buffer)
    assert spare_tables.take("registers", SIZE + 1) is None


def test_small_tables_are_not_kept():
    spare_tables.give("ctas", np.zeros(SIZE - 1, np.uint8))
    assert not spare_tables._spare


#: Adds up what registers, local and shared memory hold before anybody has written there.
LOOK = """
    .reg .b32 %r_value, %never, %x; .reg .b64 %a; .local .align 4 .b8 own[256]; .shared .align 4 .b8 tile[16384];
    mov.u32 %r_value, %never;
    mov.u64 %a, own; ld.local.u32 %x, [%a+128]; add.u32 %r_value, %r_value, %x;
    mov.u64 %a, tile; ld.shared.u32 %x, [%a+64]; add.u32 %r_value, %r_value, %x;
"""
FILL = """
    .reg .b32 %r_value, %never, %x<40>; .reg .b64 %a; .local .align 4 .b8 own[256]; .shared .align 4 .b8 tile[16384];
    mov.u32 %r_value, 7; mov.u32 %never, 9;
    mov.u64 %a, own; st.local.u32 [%a+128], 12345; mov.u64 %a, tile; st.shared.u32 [%a+64], 12345;
"""


@pytest.mark.parametrize("values", ["exact", "none"])
def test_a_launch_sees_nothing_of_the_one_before(values):
    def look():
        out = zeros(64 * 128)
        run = launch(entry("u64 out", LOOK + STORE_THREAD), (out,), grid=64, block=128, checks="off", trace="full", values=values)
        return out.tolist(), run.cycles, run.trace.events.tobytes()

    first = look()
    launch(entry("u64 out", FILL + STORE_THREAD), (zeros(64 * 128),), grid=64, block=128, checks="off")
    assert {"registers", "shared", "local", "events"} <= set(spare_tables._spare)
    assert look() == first
