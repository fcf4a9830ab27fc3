"""The table of instructions in docs/coverage.md: what is supported, how exact it is, what times it, which capture proves it.

``python -m validate coverage --out docs/coverage.md`` writes it from the instruction tables, forms.txt and the captures; a test
holds the file to them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from h100sim.errors import PtxError
from h100sim.isa import lane
from h100sim.isa.machine import MachineOp
from h100sim.program import lower_by_line
from h100sim.ptx import parse

from .assembler import refusals
from .forms import instruction_of, kernel_of_instructions, lane_form, lane_operation, patterns

ROOT = Path(__file__).parents[2]
_DATA = ROOT / "tests" / "data"

#: What executes an instruction, by the module of its handler.
_UNITS = {
    "load_store": "memory port",
    "atomics": "memory port",
    "cp_async": "memory port",
    "matrix_moves": "shared-memory port",
    "async_stores": "cluster network",
    "tensor_copies": "TMA",
    "bulk_copies": "TMA",
    "bulk_groups": "TMA",
    "tensor_maps": "memory port",
    "tensor_core": "tensor core (wgmma)",
    "mma_sync": "tensor core (mma)",
    "wmma": "tensor core (mma), memory port",
    "mbarriers": "mbarriers",
    "named_barriers": "named barriers",
    "clusters": "cluster barrier",
    "fences": "fences",
    "cache_hints": "issue",
    "collective": "issue",
    "control": "issue",
    "calls": "issue",
    "stack": "issue",
    "linker": "issue",
}

#: What an instruction gives, where that is not "exact": by the beginning of the form.
_EXACTNESS = (
    (r"mov\.\w+ \w, %(clock|globaltimer|pm)", "cycles of the model"),
    (r"mov\.\w+ \w, %(smid|warpid|nsmid)", "placement of the model"),
    (r"nanosleep", "time of the model"),
    (r"discard", "a pattern: the value is undefined"),
    (r"prefetch|applypriority|cp\.async\.bulk\.prefetch|pmevent|griddepcontrol|fence|membar", "no value"),
    (r"(bra|brx|call|ret|exit|trap|brkpt|setmaxnreg)\b|(bar|barrier)\.(?!.*red)", "no value"),
    (r"mbarrier\.(init|inval|expect|complete)", "no value"),
    (r"wgmma\.(fence|commit|wait)|cp\.async\.(bulk\.)?(commit|wait|mbarrier)", "no value"),
    (r"(atom|red)[.]", "exact, lanes in ascending order"),
)

#: Captures that an instruction is held to, by the beginning of the form; the first that fits.
_PROOFS = (
    (r"wgmma\.mma_async\.sp", "validate/silicon/sparse_wgmma_bits.json"),
    (r"wgmma\.mma_async", "tests/data/wgmma_numerics.npz, wgmma_descriptors.npz"),
    (r"wgmma\.", "validate/silicon/gemm_256.npz"),
    (r"mma\.sp", "tests/data/mma_sparse.npz"),
    (r"mma\.sync", "tests/data/mma_sync.npz"),
    (r"wmma\.", "validate/silicon/wmma_bits.json"),
    (r"(ldmatrix|stmatrix|movmatrix)", "tests/data/matrix_moves.npz"),
    (r"(shfl|vote|match|redux|elect)\.", "tests/data/warp_ops.npz"),
    (r"cp\.async\.bulk\.tensor.*\.im2col", "tests/data/tma_im2col.npz, tma_interleave.npz"),
    (r"cp\.async\.bulk\.tensor.*(im2col_no_offs|bulk_group)", "tests/data/tma_store.npz"),
    (r"cp\.async\.bulk\.tensor", "tests/data/tma_load.npz"),
    (r"cp\.reduce\.async\.bulk\.tensor", "tests/data/tma_store.npz, tma_reduction.npz"),
    (r"cp\.reduce\.async\.bulk", "validate/silicon/cluster_store_bits.json"),
    (r"cp\.async\.bulk\.(commit|wait)", "validate/silicon/copy_64.npz"),
    (r"cp\.async\.bulk\.shared::c\w+\.global\.mbarrier", "validate/silicon/bulk_copy_latency.json (cycles)"),
    (r"(st|red)\.async", "validate/silicon/cluster_store_bits.json"),
    (r"tensormap\.replace", "validate/silicon/tensor_map_fields.json"),
    (r"createpolicy", "validate/silicon/cache_policies.json"),
    (r"(atom|red)\.", "tests/data/tma_reduction.npz (the arithmetic)"),
    (r"mbarrier\.(init|arrive\.expect_tx(?!.*cluster)|try_wait\.parity)", "validate/silicon/gemm_256.npz"),
    (r"(bar\.sync|mbarrier\.arrive(?!.*(noComplete|expect_tx|cluster)))", "validate/silicon/barrier_round_trip.json (cycles)"),
    (r"(setmaxnreg|fence\.proxy\.async|fence\.mbarrier_init)", "validate/silicon/attention_1.npz"),
    (r"ld\.param|(st|ld)\.(global|shared)\.b32|cvta", "validate/silicon/copy_64.npz"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    family: str
    form: str
    count: int
    taken: int
    supported: str
    exactness: str
    unit: str
    proof: str


@dataclass(frozen=True)
class Answer:
    """What becomes of one form here: the unit that runs it, or why it is refused."""

    unit: str
    refusal: str


def answers_of(forms: Iterable[str]) -> dict[str, Answer]:
    """Return what becomes of forms, all of one kernel if its text can be parsed."""
    listed = list(forms)
    if len(listed) > 1:
        try:
            text, first = kernel_of_instructions([instruction_of(form) for form in listed])
            found = _by_line(text)
            return {form: found[first + k] for k, form in enumerate(listed)}
        except (PtxError, KeyError):
            pass
    return {form: _alone(form) for form in listed}


def _alone(form: str) -> Answer:
    text, first = kernel_of_instructions([instruction_of(form)])
    try:
        return _by_line(text).get(first, Answer("issue", ""))
    except PtxError as error:
        return Answer("", error.message)


def _by_line(text: str) -> dict[int, Answer]:
    module = parse(text)
    return {line: _answer(op) for line, op in lower_by_line(module, module.functions["kernel"]).items()}


def _answer(op: lane.LaneOp | MachineOp | PtxError | None) -> Answer:
    if isinstance(op, PtxError):
        return Answer("", op.message)
    if op is None:
        return Answer("issue", "")
    if isinstance(op, lane.LaneOp):
        return Answer(f"{op.form.pipe} pipe", "")
    return Answer(_UNITS[op.handler.__module__.rpartition(".")[2]], "")


@cache
def machine_answers() -> dict[str, Answer]:
    """Return what becomes of every form of forms.txt."""
    found: dict[str, Answer] = {}
    for pattern in patterns():
        found |= answers_of(pattern.forms)
    return found


def _supported(forms: tuple[str, ...], here: dict[str, Answer], there: dict[str, str]) -> str:
    """Say whether forms are supported, and if not, why."""
    taken = [form for form in forms if not here[form].refusal]
    legal = [form for form in forms if form not in there]
    if not legal:
        return "not on sm_90a"
    if not taken:
        return f"no: {_reason(legal[0], here[legal[0]].refusal)}"
    if len(taken) == len(forms):
        return "yes"
    others = "ptxas refuses the others" if len(taken) == len(legal) else "the others are refused"
    return f"yes, {len(taken)} of {len(forms)}: {others}"


#: Why forms are refused whose message does not say so, by the beginning of the form.
_REASONS = (
    (r"mma\.sync\.aligned\.m8n8k4", "the shape of sm_70, for which ptxas 13.0 makes code that multiplies no matrices"),
    (r"mov\.\w+ \w, %pm", "performance counters are not simulated"),
    (r"mov\.\w+ \w, %reserved", "the registers of the reserved memory are not simulated"),
    (r"su[a-z]+\.", "textures and surfaces are not simulated"),
)


def _reason(form: str, refusal: str) -> str:
    """Return the part of a message that gives the reason."""
    if "must be one that is simulated" in refusal:
        return refusal.split(": ", 1)[1] + " simulated"
    return _first(_REASONS, form, "refused")


def _first(table: tuple[tuple[str, str], ...], form: str, otherwise: str) -> str:
    return next((text for pattern, text in table if re.match(pattern, form)), otherwise)


def machine_rows() -> Iterator[Row]:
    """Yield a row for each line of forms.txt."""
    here, there = machine_answers(), refusals()
    for pattern in patterns():
        supported = _supported(pattern.forms, here, there)
        is_supported = supported.startswith("yes")
        units = Counter(here[form].unit for form in pattern.forms if here[form].unit)
        yield Row(
            pattern.family,
            pattern.text,
            len(pattern.forms),
            sum(not here[form].refusal for form in pattern.forms),
            supported,
            _first(_EXACTNESS, pattern.forms[0], "exact") if is_supported else "",
            ", ".join(sorted(units)) if is_supported else "",
            _first(_PROOFS, pattern.forms[0], "") if is_supported else "",
        )


@cache
def captured_opcodes() -> dict[str, str]:
    """Return the strongest capture that a lane opcode is held to: every input, awkward inputs, random inputs."""
    silicon = ROOT / "validate" / "silicon"
    found = dict.fromkeys(np.load(_DATA / "scalar_ops.npz").files, "tests/data/scalar_ops.npz")
    found |= dict.fromkeys((row["op"] for row in json.loads((_DATA / "ptx_scalar.json").read_text())), "tests/data/ptx_scalar.npz")
    for name in ("lane_forms", "exhaustive"):
        results = json.loads((silicon / f"{name}.json").read_text())["results"]
        found |= dict.fromkeys(results, f"validate/silicon/{name}.json")
    return found


def lane_rows() -> Iterator[Row]:
    """Yield a row for each family function of the lane instructions."""
    lane.forms()
    captured, refused = captured_opcodes(), refusals()
    for family, written in lane.PATTERNS.items():
        opcodes = list(dict.fromkeys(opcode for pattern in written for opcode in lane.expand(pattern)))
        known = Counter(captured[opcode] for opcode in opcodes if opcode in captured)
        wrong = [opcode for opcode in opcodes if lane_form(opcode) in refused]
        pipes = sorted({lane_operation(opcode).pipe for opcode in opcodes})
        shown = written if len(written) <= 3 else [*written[:3], f"and {len(written) - 3} more"]
        yield Row(
            f"Lane instructions: {family.__module__.rpartition('.')[2].replace('_', ' ')}",
            "<br>".join(shown),
            len(opcodes),
            len(opcodes),
            "yes" if not wrong else f"yes, {len(wrong)} more than ptxas",
            "exact",
            ", ".join(f"{pipe} pipe" for pipe in pipes),
            ", ".join(f"{name} ({count} of {len(opcodes)})" for name, count in sorted(known.items())),
        )


_INTRODUCTION = """# Instructions

Every form of every PTX instruction, what becomes of it here, how exact its result is, what times it, and which capture of an
NVIDIA H200 it is held to. Generated by `python -m validate coverage --out docs/coverage.md` from the instruction tables and
`validate/coverage/forms.txt`. A test keeps it current, and another holds the simulator to what `ptxas` takes for sm_90a
(release {ptxas}, asked about {asked:,} forms): what it refuses is refused here, too.

{taken:,} forms are supported, of {legal:,} that ptxas takes. `[a|b|]` is a choice, the empty one included. In operands `h`, `r`,
`d`, `q` are registers of 16 to 128 bits, `p` predicates, `f` f32 registers, `t` a register and `v` a vector of the opcode's type.
The last column names a capture that has at least one form of the row; where it is empty, none has the instruction itself.
"""


def markdown() -> str:
    """Return the text of docs/coverage.md."""
    rows = [*machine_rows(), *lane_rows()]
    taken = sum(row.taken for row in rows)
    there = json.loads((_DATA / "ptxas_forms.json").read_text())
    legal = there["asked"] - len(there["refused"])
    lines = _INTRODUCTION.format(**there, taken=taken, legal=legal).splitlines()
    family = ""
    for row in rows:
        if row.family != family:
            family = row.family
            lines += [
                "",
                f"## {family}",
                "",
                "| form | forms | supported | result | timed by | held to |",
                "|---|---|---|---|---|---|",
            ]
        form = "<br>".join(f"`{part}`" if not part.startswith("and ") else part for part in row.form.split("<br>"))
        cells = (form, f"{row.count:,}", row.supported, row.exactness, row.unit, row.proof)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
