"""Why is my tile scrambled? Operands of wgmma that do not lie as the tensor copies that wrote them laid them out.

For each 16-byte chunk of an operand, the descriptor says where it is read, and the box of the copy that wrote there says
which row and column of the tensor it is. In an operand that lies as it should, chunks that follow each other along its
contiguous dimension follow each other in a row of the box (or in global memory), lines follow each other at one distance,
and no chunk is read twice. Where that fails, other descriptors and other swizzles of the copy are tried, the smallest
change first, and the first one that makes order is the advice.

Looked at are the first executions of each wgmma, and operands that tensor copies of tiled or im2col maps wrote and nobody
else. Nothing here is a hazard: what is read is defined, only seldom meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..layouts.descriptor import MODES, MatrixDescriptor, operand_addresses, operand_bits
from ..layouts.swizzle import SPANS, swizzle
from ..ptx import Instruction, parse
from ..trace import Access, Copy, Event, Space, Trace
from .checker import is_transposed

#: Executions of each wgmma that are looked at.
_EXECUTIONS = 2
_SPAN_NAMES = {span: name for name, span in SPANS.items()}


@dataclass(frozen=True)
class ScrambledOperand:
    """An operand that does not lie as it was copied: ``symptom`` is the first chunk that is not the one that was due."""

    operand: str
    opcode: str
    place: str
    copy_place: str
    symptom: str
    facts: str
    fix: str

    @property
    def message(self) -> str:
        return f"operand {self.operand} of wgmma must lie as it was copied, not in another order"

    def __str__(self) -> str:
        return (
            f"scrambled: {self.message}\n"
            f"  access   {self.place}, copied at {self.copy_place}\n"
            f"  symptom  {self.symptom}\n"
            f"  layouts  {self.facts}\n"
            f"  fix      {self.fix}"
        )


@dataclass(frozen=True)
class _Box:
    """A box in the shared memory of a CTA: ``starts`` are the global addresses of its rows, empty if not all are known."""

    base: int
    row_bytes: int
    pitch: int
    rows: int
    span: int
    starts: np.ndarray
    pc: int


def scrambled_operands(trace: Trace) -> tuple[ScrambledOperand, ...]:
    """Return the operands of wgmma that do not lie as they were copied, one for each line, operand and advice."""
    wgmmas = np.flatnonzero(trace.events["kind"] == Event.WGMMA_ISSUED)
    boxes = trace.of(Event.TMA_BOX)
    if not len(wgmmas) or not len(boxes):
        return ()
    instructions = _instructions(trace)
    found: dict[tuple[str, str, str], ScrambledOperand] = {}
    for row in _first_executions(trace, wgmmas):
        event = trace.events[row]
        for which, field in enumerate("ab"):
            bits = int(event[field])
            if which == 0 and bits == -1:
                continue
            instruction = instructions[int(event["pc"])]
            operand = _Operand(instruction.opcode, "ab"[which], bits & (1 << 64) - 1, is_transposed(instruction, which))
            problem = _examine(trace, row, operand, trace.kernel.place(int(event["pc"])))
            if problem:
                found.setdefault((problem.place, problem.operand, problem.fix), problem)
    return tuple(found.values())


def _instructions(trace: Trace) -> dict[int, Instruction]:
    """Return pc -> wgmma instruction."""
    functions = parse(trace.kernel.ptx).functions.values()
    by_line = {x.line: x for function in functions for x in function.instructions if x.base == "wgmma"}
    return {pc: by_line[line] for pc, line in enumerate(trace.kernel.lines) if line in by_line}


def _first_executions(trace: Trace, rows: np.ndarray) -> Iterator[int]:
    _, first = np.unique(trace.events["op"][rows], return_index=True)
    seen: dict[int, int] = {}
    for row in rows[np.sort(first)].tolist():
        pc = int(trace.events["pc"][row])
        seen[pc] = seen.get(pc, 0) + 1
        if seen[pc] <= _EXECUTIONS:
            yield row


@dataclass(frozen=True)
class _Operand:
    opcode: str
    which: str
    bits: int
    transpose: bool

    @property
    def bits_per_element(self) -> int:
        return operand_bits(self.opcode, self.which)

    def chunks(self) -> np.ndarray:
        """Return the address of every 16-byte chunk: lines, and chunks along the contiguous dimension."""
        addresses = operand_addresses(self.opcode, self.which, self.bits, self.transpose)
        return addresses[::8].T if self.transpose else addresses[:, :: 128 // self.bits_per_element]

    def name(self, line: int, chunk: int) -> str:
        per_chunk = 128 // self.bits_per_element
        side = "m" if self.which == "a" else "n"
        along = f"{chunk * per_chunk}-{(chunk + 1) * per_chunk - 1}"
        return f"{side} {along} of k {line}" if self.transpose else f"k {along} of {side} {line}"


def _examine(trace: Trace, row: int, operand: _Operand, place: str) -> ScrambledOperand | None:
    chunks = operand.chunks()
    low, high = int(chunks.min()), int(chunks.max()) + 16
    boxes = _boxes(trace, row, low, high)
    if not boxes or _others_write(trace, row, low, high):
        return None
    view = _View(chunks, boxes)
    wrong = view.first_wrong()
    if wrong is None:
        return None
    line, chunk = wrong
    box = boxes[view.box[line, chunk]]
    descriptor = MatrixDescriptor.decode(operand.bits)
    due = view.due(line, chunk)
    symptom = f"{operand.name(line, chunk)} is {_at(view, line, chunk)} of the box" + (f", where {due} was due" if due else "")
    return ScrambledOperand(
        operand.which.upper(),
        operand.opcode,
        place,
        trace.kernel.place(box.pc),
        symptom,
        f"the copy has rows of {box.row_bytes} bytes, swizzle {_SPAN_NAMES[box.span]}; the descriptor swizzle "
        f"{descriptor.swizzle}, leading byte offset {descriptor.leading_byte_offset:,}, stride byte offset "
        f"{descriptor.stride_byte_offset:,}, base offset {descriptor.base_offset}" + (", transposed" if operand.transpose else ""),
        _advice(operand, descriptor, boxes),
    )


def _at(view: _View, line: int, chunk: int) -> str:
    j = int(view.column[line, chunk])
    return f"row {int(view.row[line, chunk])}, bytes {j}-{j + 15}"


def _boxes(trace: Trace, row: int, low: int, high: int) -> list[_Box]:
    """Return the boxes that had been copied to [low, high) of the CTA of an event before it, in that order."""
    events, cta = trace.events[:row], trace.events["cta"][row]
    is_done = (events["kind"] == Event.TMA_COMPLETED) & (events["cta"] == cta) & (events["a"] == Copy.TENSOR_LOAD)
    laid = events[events["kind"] == Event.TMA_BOX]
    of = {int(op): event for op, event in zip(laid["op"], laid, strict=True)}
    found = []
    for event in events[is_done]:
        box = of.get(int(event["op"]))
        base = int(event["c"]) & 0xFFFFFF
        if box is None or not box["a"] or base >= high or base + int(box["b"] * box["c"]) <= low:
            continue
        starts = _row_starts(events, int(event["op"]), int(box["a"]), int(box["c"]))
        found.append(_Box(base, int(box["a"]), int(box["b"]), int(box["c"]), int(box["d"]), starts, int(box["pc"])))
    return found


def _row_starts(events: np.ndarray, op: int, row_bytes: int, rows: int) -> np.ndarray:
    """Return the global addresses of the rows of a box, or none if a part of it lies outside of its tensor."""
    blocks = events[(events["kind"] == Event.TMA_GLOBAL) & (events["op"] == op)]
    if not len(blocks) or (blocks["b"] != row_bytes).any() or blocks["c"].sum() != rows:
        return np.empty(0, np.int64)
    return np.concatenate([b["a"] + b["d"] * np.arange(b["c"]) for b in blocks])


def _others_write(trace: Trace, row: int, low: int, high: int) -> bool:
    """Has the CTA of an event, or another kind of copy, written to [low, high) of its shared memory before it?"""
    events, cta = trace.events[:row], trace.events["cta"][row]
    own = events[events["cta"] == cta]
    copies = own[(own["kind"] == Event.TMA_COMPLETED) & (own["a"] != Copy.TENSOR_LOAD)]
    base = copies["c"] & 0xFFFFFF
    reads = (Copy.TENSOR_STORE, Copy.TENSOR_REDUCE, Copy.BULK_STORE, Copy.BULK_REDUCE)
    if ((base < high) & (base + copies["b"] > low) & ~np.isin(copies["a"], reads)).any():
        return True
    written = own[(own["kind"] == Event.MEMORY) & (own["c"] == Space.SHARED) & (own["d"] & int(Access.WRITE) != 0)]
    lanes = trace.lanes[written["a"]] & 0xFFFFFF
    active = trace.lanes[written["a"]] >= 0
    return bool((active & (lanes < high) & (lanes + written["b"][:, None] > low)).any())


class _View:
    """Chunks of an operand as places in boxes: ``box`` (-1: none), ``row`` and ``column`` (bytes), all (lines, chunks)."""

    def __init__(self, chunks: np.ndarray, boxes: list[_Box]):
        self.boxes = boxes
        self.box = np.full(chunks.shape, -1)
        self.row, self.column = np.zeros(chunks.shape, np.int64), np.zeros(chunks.shape, np.int64)
        self.start = np.full(chunks.shape, -1, np.int64)
        for n, box in enumerate(boxes):
            linear = swizzle(chunks, box.span) - box.base
            row, column = linear // box.pitch, linear % box.pitch
            inside = (linear >= 0) & (row < box.rows) & (column < box.row_bytes)
            self.box[inside] = n
            self.row[inside], self.column[inside] = row[inside], column[inside]
            self.start[inside] = box.starts[row[inside]] + column[inside] if len(box.starts) else -1

    @property
    def is_covered(self) -> bool:
        return bool((self.box >= 0).all())

    def first_wrong(self) -> tuple[int, int] | None:
        """Return the first (line, chunk) that is not where its neighbours say, or that is read twice."""
        wrong = np.zeros(self.box.shape, bool)
        same = (self.box[:, 1:] == self.box[:, :-1]) & (self.box[:, 1:] >= 0)
        follows = (self.row[:, 1:] == self.row[:, :-1]) & (self.column[:, 1:] == self.column[:, :-1] + 16)
        follows |= (self.start[:, 1:] == self.start[:, :-1] + 16) & (self.start[:, :-1] >= 0)
        wrong[:, 1:] |= same & ~follows
        same = (self.box[1:] == self.box[:-1]) & (self.box[1:] >= 0)
        step = self.row[1:] - self.row[:-1]
        due = step[same][0] if same.any() else 0
        wrong[1:] |= same & ((step != due) | (self.column[1:] != self.column[:-1]))
        places = np.stack([self.box, self.row, self.column])[:, self.box >= 0]
        if places.shape[1] and len(np.unique(places, axis=1)[0]) < places.shape[1]:
            _, first = np.unique(places, axis=1, return_index=True)
            again = np.ones(places.shape[1], bool)
            again[first] = False
            wrong[self.box >= 0] |= again
        at = np.argwhere(wrong)
        return (int(at[0][0]), int(at[0][1])) if len(at) else None

    def due(self, line: int, chunk: int) -> str:
        """Return in words what should be there, from the chunk before it, or from the line before it."""
        if chunk and self.box[line, chunk - 1] == self.box[line, chunk]:
            row, column = int(self.row[line, chunk - 1]), int(self.column[line, chunk - 1]) + 16
            return f"row {row}, bytes {column}-{column + 15}" if column < self.boxes[self.box[line, chunk]].row_bytes else ""
        if line and self.box[line - 1, chunk] == self.box[line, chunk]:
            row, column = int(self.row[line - 1, chunk]) + 1, int(self.column[line - 1, chunk])
            return f"row {row}, bytes {column}-{column + 15}"
        return ""


def _advice(operand: _Operand, descriptor: MatrixDescriptor, boxes: list[_Box]) -> str:
    """Return the smallest change that makes order, in words."""
    for words, changed, laid in _changes(operand, descriptor, boxes):
        view = _View(changed.chunks(), laid)
        if view.is_covered and view.first_wrong() is None:
            return words
    return "compare `h100sim layout descriptor` of this descriptor with `h100sim layout swizzle` of the tile"


def _changes(operand: _Operand, descriptor: MatrixDescriptor, boxes: list[_Box]) -> Iterator[tuple[str, _Operand, list[_Box]]]:
    def with_fields(**fields: Any) -> _Operand:
        return replace(operand, bits=replace(descriptor, **fields).encode())

    box = boxes[-1]
    mode, leading, stride = descriptor.swizzle, descriptor.leading_byte_offset, descriptor.stride_byte_offset
    if descriptor.base_offset:
        yield f"descriptor base offset 0, not {descriptor.base_offset}", with_fields(base_offset=0), boxes
    own = _SPAN_NAMES[box.span]
    for name in (own, *(m for m in MODES if m != own)):
        if name != mode:
            yield f"descriptor swizzle {name}, as the tensor map has it, not {mode}", with_fields(swizzle=name), boxes
    if leading != stride:
        swapped = with_fields(leading_byte_offset=stride, stride_byte_offset=leading)
        yield f"descriptor leading and stride byte offset the other way round: {stride:,} and {leading:,}", swapped, boxes
    sizes = sorted({8 * box.pitch, 128, box.pitch * box.rows, 8 * box.span, box.span * box.rows})
    sizes = [size for size in sizes if size % 16 == 0 and size < 1 << 18]
    for size in sizes:
        if size != stride:
            yield f"descriptor stride byte offset {size:,}, not {stride:,}", with_fields(stride_byte_offset=size), boxes
    for size in sizes:
        if size != leading:
            yield f"descriptor leading byte offset {size:,}, not {leading:,}", with_fields(leading_byte_offset=size), boxes
    for name, span in SPANS.items():
        if span != box.span and (name == "none" or box.row_bytes <= span):
            pitch = box.row_bytes if name == "none" else span
            laid = [replace(b, span=span, pitch=pitch) for b in boxes]
            yield f"tensor map swizzle {name}, as the descriptor has it, not {own}", operand, laid
    if operand.bits_per_element == 16:
        value = int(not operand.transpose)
        yield f"imm-trans-{operand.which} {value}, not {1 - value}", replace(operand, transpose=not operand.transpose), boxes
    for name in MODES:
        for size in sizes:
            for other in sizes:
                changed = with_fields(swizzle=name, stride_byte_offset=size, leading_byte_offset=other)
                yield f"descriptor swizzle {name}, leading byte offset {other:,}, stride byte offset {size:,}", changed, boxes
