"""A trace as a Perfetto file: tracks per SM, CTA, warpgroup and warp, the TMA engine, the tensor core and the
mbarriers.

Unit: Perfetto counts nanoseconds, a trace counts SM cycles; one nanosecond in the viewer is one cycle (the file's first
track says so). What overlaps on a unit lies on sibling tracks of one name, which the viewer draws as one. Flows lead
from the instruction that issues a copy to its completion and on to every warp that the completed phase lets go on.

Spec: Perfetto documentation, "Writing TrackEvent Protos Synthetically"; file format TracePacket and TrackEvent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from . import intervals
from .trace import Copy, Event, Trace, Wait

_SEQUENCE = 1
_BEGIN, _END, _INSTANT = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT


@dataclass
class _Writer:
    """Packets being collected. Tracks are created on first use, by their path of names."""

    builder: TraceProtoBuilder = field(default_factory=TraceProtoBuilder)
    tracks: dict[tuple[Any, ...], int] = field(default_factory=dict)
    events: list[tuple[int, int, int, str, dict[str, Any], tuple[int, ...]]] = field(default_factory=list)

    def track(self, path: tuple[Any, ...], name: str, rank: int = 0, description: str = "") -> int:
        """Return the uuid of a track; its parent is the track of the path without the last part, if there is one."""
        if path in self.tracks:
            return self.tracks[path]
        uuid = self.tracks[path] = len(self.tracks) + 1
        packet = self.builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = uuid, name, rank
        descriptor.child_ordering = TrackDescriptor.EXPLICIT
        if path[:-1] in self.tracks:
            descriptor.parent_uuid = self.tracks[path[:-1]]
        if description:
            descriptor.description = description
        return uuid

    def slice(self, track: int, start: int, end: int, name: str, flows: tuple[int, ...] = (), **notes: Any) -> None:
        # Sorting puts an end before a beginning of the same cycle, so that neighbours on a track do not nest.
        end = max(end, start + 1)
        self.events.append((start, 1, track, name, notes, flows))
        self.events.append((end, 0, track, "", {}, ()))

    def instant(self, track: int, time: int, name: str, flows: tuple[int, ...] = ()) -> None:
        self.events.append((time, 2, track, name, {}, flows))

    def finish(self) -> bytes:
        for time, order, track, name, notes, flows in sorted(self.events, key=lambda e: e[:3]):
            packet = self.builder.add_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = time, _SEQUENCE
            event = packet.track_event
            event.type, event.track_uuid = (_END, _BEGIN, _INSTANT)[order], track
            if name:
                event.name = name
            event.flow_ids.extend(flows)
            for key, value in notes.items():
                note = event.debug_annotations.add()
                note.name = key
                if isinstance(value, str):
                    note.string_value = value
                else:
                    note.int_value = int(value)
        return self.builder.trace.SerializeToString(deterministic=True)


def write_perfetto(trace: Trace, path: str | Path) -> None:
    """Write a trace for ui.perfetto.dev. The same trace gives the same bytes."""
    Path(path).write_bytes(perfetto_bytes(trace))


def perfetto_bytes(trace: Trace) -> bytes:
    """Return the bytes of the Perfetto file: a serialised ``perfetto.protos.Trace``."""
    writer = _Writer()
    kernel = trace.kernel
    about = f"{kernel.name} on {kernel.device}: 1 ns here is 1 SM cycle ({kernel.clock_mhz:,} MHz on the chip)"
    root = writer.track(("kernel",), about, -1, "Times are SM cycles since the launch, written as nanoseconds.")
    writer.slice(root, 0, int(trace.cycles), kernel.name, cycles=trace.cycles)
    _tracks(writer, trace)
    flow_of_flip, flow_of_copy = _mbarrier_phases(writer, trace)
    _warps(writer, trace, flow_of_flip, flow_of_copy)
    _copies(writer, trace, flow_of_copy)
    _wgmmas(writer, trace)
    return writer.finish()


def _tracks(writer: _Writer, trace: Trace) -> None:
    for sm in np.unique(trace.ctas["sm"]).tolist():
        writer.track(("SM", sm), f"SM {sm}", sm)
    for cta, end in zip(trace.ctas, intervals.cta_ends(trace).tolist(), strict=True):
        number, sm = int(cta["cta"]), int(cta["sm"])
        track = writer.track(("SM", sm, number), f"CTA {number}", number)
        writer.slice(track, int(cta["start"]), end, f"CTA {number}")
    for number, warp in enumerate(trace.warps):
        cta, sm, rank = int(warp["cta"]), int(warp["sm"]), int(warp["rank"])
        group = ("SM", sm, cta, f"group {rank // 4}")
        if cta not in trace.ctas["cta"]:
            continue
        writer.track(group, trace.kernel.role(rank), rank // 4)
        writer.track((*group, number), f"warp {rank}", rank)


def _warp_track(writer: _Writer, trace: Trace, number: int, row: int = 0) -> int:
    """Return the track of a warp; rows above 0 are for lanes that parted and wait at the same time."""
    warp = trace.warps[number]
    rank = int(warp["rank"])
    path = ("SM", int(warp["sm"]), int(warp["cta"]), f"group {rank // 4}")
    return writer.track((*path, number, row) if row else (*path, number), f"warp {rank}", rank)


def _mbarrier_phases(writer: _Writer, trace: Trace) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
    """Draw the phases of every mbarrier. Return the flow of each (mbarrier, completed phase), and of each copy that
    took part in one: a copy and the phase it completes share a flow."""
    sms = dict(zip(trace.ctas["cta"].tolist(), trace.ctas["sm"].tolist(), strict=True))
    flow_of_flip: dict[tuple[int, int], int] = {}
    flow_of_copy: dict[int, int] = {}
    open_since: dict[int, tuple[int, int]] = {}
    track_of: dict[int, int] = {}
    for info in intervals.mbarriers(trace):
        identity, cta = int(info["identity"]), int(info["cta"])
        parent = ("SM", sms[cta], cta)
        writer.track((*parent, "mbarriers"), "mbarriers", 1000)
        name = intervals.mbarrier_name(trace.kernel, int(info["address"]))
        track_of[identity] = writer.track((*parent, "mbarriers", identity), name, identity)
        open_since[identity] = (0, int(trace.events["time"][info["event"]]))
    for e in trace.of(Event.MBARRIER_COMPLETED_TX, Event.MBARRIER_FLIPPED):
        identity = int(e["a"])
        if identity not in track_of:
            continue
        if e["kind"] == Event.MBARRIER_COMPLETED_TX:
            key = (identity, int(e["d"]))
            flow_of_copy[int(e["op"])] = flow_of_flip.setdefault(key, len(flow_of_flip) + 1)
            continue
        key = (identity, int(e["b"]))
        flow = flow_of_flip.setdefault(key, len(flow_of_flip) + 1)
        phase, since = open_since[identity]
        writer.slice(track_of[identity], since, int(e["time"]), f"phase {phase}")
        writer.instant(track_of[identity], int(e["time"]), f"phase {phase} complete", (flow,))
        open_since[identity] = (phase + 1, int(e["time"]))
    for identity, (phase, since) in open_since.items():
        writer.slice(track_of[identity], since, int(trace.cycles), f"phase {phase} (not completed)")
    return flow_of_flip, flow_of_copy


def _warps(writer: _Writer, trace: Trace, flow_of_flip: dict[tuple[int, int], int], flow_of_copy: dict[int, int]) -> None:
    names = {int(m["identity"]): intervals.mbarrier_name(trace.kernel, int(m["address"])) for m in intervals.mbarriers(trace)}
    seen = _phases_seen(trace)
    waits = np.sort(intervals.waits(trace), order=("warp", "blocked", "first_event"))
    ends = np.where(waits["resumed"] >= 0, waits["resumed"], trace.cycles)
    for wait, end, row in zip(waits, ends.tolist(), _rows_per_warp(waits, ends), strict=True):
        track = _warp_track(writer, trace, int(wait["warp"]), row)
        thing = int(wait["object"])
        flows: tuple[int, ...] = ()
        if wait["wait"] == Wait.MBARRIER:
            phase = seen.get((int(wait["warp"]), thing, end))
            flow = flow_of_flip.get((thing, phase)) if phase is not None else None
            flows = (flow,) if flow else ()
        writer.slice(track, int(wait["blocked"]), end, _wait_name(wait, names), at=trace.kernel.place(int(wait["pc"])))
        if flows:
            writer.instant(track, end, "woken", flows)
    for copy in intervals.copies(trace):
        flow = flow_of_copy.get(int(copy["op"]))
        track = _warp_track(writer, trace, int(copy["warp"]))
        writer.instant(track, int(copy["issued"]), f"issues {_copy_name(trace, copy)}", (flow,) if flow else ())


def _rows_per_warp(waits: np.ndarray, ends: np.ndarray) -> list[int]:
    rows: list[int] = []
    for warp in np.unique(waits["warp"]):
        own = waits["warp"] == warp
        rows.extend(intervals.pack(waits["blocked"][own].tolist(), ends[own].tolist()).tolist())
    return rows


def _phases_seen(trace: Trace) -> dict[tuple[int, int, int], int]:
    """Return which phase let a warp go on: the last one completed at (warp, mbarrier, cycle of waking)."""
    phase: dict[int, int] = {}
    found = {}
    for e in trace.of(Event.MBARRIER_FLIPPED, Event.RESUMED):
        if e["kind"] == Event.MBARRIER_FLIPPED:
            phase[int(e["a"])] = int(e["b"])
        elif e["a"] == Wait.MBARRIER and int(e["b"]) in phase:
            found[int(e["warp"]), int(e["b"]), int(e["time"])] = phase[int(e["b"])]
    return found


def _wait_name(wait: np.void, names: dict[int, str]) -> str:
    kind, thing = Wait(int(wait["wait"])), int(wait["object"])
    never = "" if wait["resumed"] >= 0 else " (never woken)"
    if kind is Wait.MBARRIER:
        return f"wait {names.get(thing, 'mbarrier of another CTA')}{never}"
    if kind is Wait.BARRIER:
        return f"wait barrier {thing}{never}"
    return f"wait {kind.name.lower().replace('_', ' ')}{never}"


def _copy_name(trace: Trace, copy: np.void) -> str:
    return f"{Copy(int(copy['copy'])).name.lower().replace('_', ' ')} {int(copy['bytes']):,} B"


def _copies(writer: _Writer, trace: Trace, flow_of_copy: dict[int, int]) -> None:
    table = intervals.copies(trace)
    for sm, own, rows in _by_sm(trace, table):
        for copy, row in zip(own, rows, strict=True):
            track = writer.track(("SM", sm, f"tma {row}"), "TMA engine", 1_000_000)
            end = int(copy["completed"]) if copy["completed"] >= 0 else int(trace.cycles)
            flow = flow_of_copy.get(int(copy["op"]))
            name = _copy_name(trace, copy) + ("" if copy["completed"] >= 0 else " (never completed)")
            shared = f"{int(copy['shared']) & intervals.SHARED_OFFSET_MASK:#x}"
            writer.slice(
                track, int(copy["issued"]), end, name, (flow,) if flow else (), cta=copy["cta"], operation=copy["op"],
                shared=shared, at=trace.kernel.place(int(copy["pc"])),
            )  # fmt: skip
            if copy["issued"] < copy["started"] < end:
                writer.slice(track, int(copy["started"]), end, "in flight")


def _wgmmas(writer: _Writer, trace: Trace) -> None:
    table = intervals.wgmmas(trace)
    for sm, own, rows in _by_sm(trace, table):
        for op, row in zip(own, rows, strict=True):
            track = writer.track(("SM", sm, f"tensor core {row}"), "tensor core", 1_000_001)
            end = int(op["completed"]) if op["completed"] >= 0 else int(trace.cycles)
            role = trace.kernel.role(int(trace.warps["rank"][op["warp"]]))
            pc = int(op["pc"])
            opcode = trace.kernel.opcodes[pc] if 0 <= pc < len(trace.kernel.opcodes) else "wgmma"
            writer.slice(
                track, int(op["issued"]), end, f"wgmma, {role}", cta=op["cta"], operation=op["op"], opcode=opcode,
                at=trace.kernel.place(pc),
            )  # fmt: skip
            if op["started"] > op["issued"]:
                writer.slice(track, int(op["started"]), end, "executes")


def _by_sm(trace: Trace, table: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return, per SM, its operations in the order of issue and a row for each so that no two on a row overlap."""
    sm_of = dict(zip(trace.ctas["cta"].tolist(), trace.ctas["sm"].tolist(), strict=True))
    sms = np.array([sm_of[int(cta)] for cta in table["cta"]], np.int64)
    result = []
    for sm in np.unique(sms).tolist():
        own = table[sms == sm]
        own = own[np.argsort(own["issued"], kind="stable")]
        ends = np.where(own["completed"] >= 0, own["completed"], trace.cycles)
        result.append((sm, own, intervals.pack(own["issued"].tolist(), np.maximum(ends, own["issued"] + 1).tolist())))
    return result
