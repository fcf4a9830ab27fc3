"""The Perfetto file, parsed back with the package's own message classes."""

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from h100sim import intervals
from h100sim.perfetto_export import perfetto_bytes, write_perfetto
from h100sim.trace import Event


@pytest.fixture(scope="module")
def trace():
    name = "h100sim_tests_make_trace"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "viz" / "make_trace.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].make_trace()


class Parsed:
    """Tracks by uuid, their path of names, and the slices (start, end, name, flows) of each."""

    def __init__(self, data):
        packets = PerfettoTrace.FromString(data).packet
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
        self.slices, self.instants, open_slices = defaultdict(list), defaultdict(list), defaultdict(list)
        self.times = []
        for packet in packets:
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            track = self.path(event.track_uuid), event.track_uuid
            self.times.append(packet.timestamp)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[track].append((packet.timestamp, event.name, tuple(event.flow_ids)))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                start, name, flows = open_slices[track].pop()
                self.slices[track[0]].append((start, packet.timestamp, name, flows))
            else:
                self.instants[track[0]].append((packet.timestamp, event.name, tuple(event.flow_ids)))
        self.unclosed = [s for stack in open_slices.values() for s in stack]

    def path(self, uuid):
        track = self.tracks[uuid]
        above = self.path(track.parent_uuid) if track.parent_uuid else ()
        return (*above, track.name)


@pytest.fixture(scope="module")
def parsed(trace):
    return Parsed(perfetto_bytes(trace))


def test_the_unit_is_stated(parsed):
    assert next(t.name for t in parsed.tracks.values() if not t.parent_uuid) == (
        "gemm on h100-sxm: 1 ns here is 1 SM cycle (1,755 MHz on the chip)"
    )


def test_every_slice_is_closed_and_time_never_goes_back(parsed):
    assert parsed.unclosed == [] and parsed.times == sorted(parsed.times)


def test_tracks_are_sms_ctas_warpgroups_and_warps(parsed):
    paths = {parsed.path(uuid) for uuid in parsed.tracks}
    assert ("SM 1", "CTA 1", "consumer 0", "warp 6") in paths
    assert ("SM 0", "CTA 0", "mbarriers", "full[2]") in paths
    assert {("SM 0", "TMA engine"), ("SM 0", "tensor core")} <= paths


def test_waits_have_names_and_their_true_length(trace, parsed):
    wait = next(w for w in intervals.waits(trace) if w["warp"] == 4 and w["wait"] == 1)
    row = (int(wait["blocked"]), int(wait["resumed"]), "wait full[0]", ())
    assert row in parsed.slices["SM 0", "CTA 0", "consumer 0", "warp 4"]


def test_every_copy_and_every_wgmma_is_there(trace, parsed):
    copies = [s for s in parsed.slices["SM 0", "TMA engine"] if s[2] != "in flight"]
    wgmmas = [s for s in parsed.slices["SM 1", "tensor core"] if s[2] != "executes"]
    assert len(copies) == (intervals.copies(trace)["cta"] == 0).sum()
    assert len(wgmmas) == (intervals.wgmmas(trace)["cta"] == 1).sum()
    first = intervals.copies(trace)[0]
    assert (first["issued"], first["completed"], "tensor load 16,384 B") in {s[:3] for s in copies}


def test_a_flow_leads_from_the_issue_over_the_copy_and_the_phase_to_the_waiting_warps(parsed):
    producer = parsed.instants["SM 0", "CTA 0", "producer", "warp 0"]
    flow = next(flows[0] for _, name, flows in producer if name.startswith("issues tensor load"))
    assert any(flow in flows for *_, flows in parsed.slices["SM 0", "TMA engine"])
    flips = [time for time, _, flows in parsed.instants["SM 0", "CTA 0", "mbarriers", "full[0]"] if flow in flows]
    assert len(flips) == 1
    woken = [
        time
        for (*_, warp), marks in parsed.instants.items()
        for time, name, flows in marks
        if name == "woken" and flow in flows and warp.startswith("warp")
    ]
    assert len(woken) == 8 and min(woken) >= flips[0]


def test_phases_follow_each_other(trace, parsed):
    phases = parsed.slices["SM 0", "CTA 0", "mbarriers", "empty[1]"]
    assert [p[2] for p in phases] == ["phase 0", "phase 1", "phase 2 (not completed)"]
    assert phases[0][1] == phases[1][0] and phases[-1][1] == trace.cycles


def test_overlapping_copies_lie_on_sibling_tracks_of_one_name(parsed):
    siblings = [uuid for uuid in parsed.tracks if parsed.path(uuid) == ("SM 0", "TMA engine")]
    assert len(siblings) > 1 and len({parsed.tracks[uuid].parent_uuid for uuid in siblings}) == 1


def test_the_same_trace_gives_the_same_bytes(trace, tmp_path):
    write_perfetto(trace, tmp_path / "a.pftrace")
    trace.to_perfetto(tmp_path / "b.pftrace")
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()


def test_what_never_ends_says_so(trace):
    import dataclasses

    cut = dataclasses.replace(trace, events=trace.events[trace.events["time"] < 900], cycles=900)
    assert not len(cut.of(Event.CTA_ENDED))
    parsed = Parsed(perfetto_bytes(cut))
    names = {name for slices in parsed.slices.values() for _, _, name, _ in slices}
    assert {"wait empty[0] (never woken)", "tensor load 16,384 B (never completed)"} <= names
    assert parsed.unclosed == []
