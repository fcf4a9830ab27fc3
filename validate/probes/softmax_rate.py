"""What does the softmax of attention cost a warpgroup, alone, with others, and beside a tensor core at work?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import wgmma_rate
from .timed_kernel import RESTART, cycles, timed_kernel

QUESTION = "How many cycles does a warp take for the softmax of 16 x 128 scores, and for its instructions, beside wgmma?"
SETTLES = "h100sim/schedule.py; h100sim/devices.py, Issue: the *_beside_wgmma fields"

#: Scores and accumulators of a thread: 16 x 128 and 16 x 64 of a warp.
SCORES, OUT = 64, 32
#: Instructions in a loop of one kind of instruction.
UNROLLED = 64
#: What stands in the loop, 64 times, and for how many warpgroups at most: {i} is a score, {w} a packed pair of them, {o[0]} to
#: {o[7]} are accumulators.
FORMS = {
    "fma.rn.f32": ("fma.rn.f32 %s{i}, %s{i}, %g1, %g2;", 2),
    "fma.rn.f32 of three": ("fma.rn.f32 %s{i}, %s{i}, %o{o[0]}, %o{o[5]};", 1),
    "mul.f32 by a constant": ("mul.rn.f32 %s{i}, %s{i}, 0f3f000000;", 2),
    "max.f32": ("max.f32 %s{i}, %s{i}, %g1;", 2),
    "max.f32 of two": ("max.f32 %s{i}, %s{i}, %o{o[0]};", 1),
    "lop3.b32": ("lop3.b32 %w{w}, %w{w}, %trip, %warp, 0x96;", 1),
    "ex2.approx.ftz.f32": ("ex2.approx.ftz.f32 %s{i}, %s{i};", 2),
    "cvt.rn.bf16x2.f32": ("cvt.rn.bf16x2.f32 %w{w}, %s{i}, %g1; mov.b32 %s{i}, %w{w};", 2),
    "mad.lo.s32": ("mad.lo.s32 %w{w}, %w{w}, %lane, %warp;", 1),
    "fma.rn.bf16x2": ("fma.rn.bf16x2 %w{w}, %w{w}, %lane, %warp;", 1),
    "shfl.sync.bfly": ("shfl.sync.bfly.b32 %w{w}, %w{w}, 1, 31, 0xffffffff;", 2),
    "ld.shared": ("ld.volatile.shared.b32 %w{w}, [%smem+1024];", 1),
    "st.shared": ("st.volatile.shared.b32 [%smem+1024], %w{w};", 1),
    "chain of fma.rn.f32": ("fma.rn.f32 %s0, %s0, %g1, %g2;", 1),
    "chain of max.f32": ("max.f32 %s0, %s0, %o{o[0]};", 1),
    "chain of ex2.approx.ftz.f32": ("ex2.approx.ftz.f32 %s0, %s0;", 1),
    "chain of shfl.sync.bfly": ("shfl.sync.bfly.b32 %w0, %w0, 1, 31, 0xffffffff;", 1),
    "max.f32 and fma.rn.f32": ("max.f32 %s{i}, %s{i}, %g1; fma.rn.f32 %o{o[0]}, %o{o[0]}, %g1, %g2;", 2),
    "fma.rn.f32 of max.f32": ("max.f32 %s{i}, %s{i}, %g1; fma.rn.f32 %s{i}, %s{i}, %g1, %g2;", 2),
    "ex2.approx.ftz.f32 and 4 max.f32": (
        "ex2.approx.ftz.f32 %s{i}, %s{i}; " + " ".join(f"max.f32 %o{{o[{k}]}}, %o{{o[{k}]}}, %g1;" for k in range(4)),
        2,
    ),
    "ex2.approx.ftz.f32 and 8 fma.rn.f32": (
        "ex2.approx.ftz.f32 %s{i}, %s{i}; " + " ".join(f"fma.rn.f32 %o{{o[{k}]}}, %o{{o[{k}]}}, %g1, %g2;" for k in range(8)),
        2,
    ),
}
#: Beside which of them the rate of wgmma is asked: in what they leave of a scheduler's cycles a warp has to issue it.
STARVING = ("fma.rn.f32", "max.f32", "max.f32 and fma.rn.f32", "fma.rn.f32 of max.f32")
#: What another warpgroup gives to the tensor core meanwhile: width and source of A.
STREAMS = {"nothing": None, "ss n128": (128, "ss"), "ss n256": (256, "ss"), "rs n64": (64, "rs"), "rs n128": (128, "rs")}
#: wgmma in a loop of the other warpgroup.
_OPERATIONS = 8
#: Between two of them their descriptors step through a tile, and behind all go to another one, as those of a GEMM do: a descriptor is
#: made for each wgmma, by the uniform datapath. (Measured: descriptors that come from registers of the lanes cost those beside them
#: more, R2UR taking the pipe of integers: softmax beside n 128 1,752 cycles, not 1,379 beside descriptors that do not change.)
_STEP = "add.s64 %desc_a, %desc_a, 2; add.s64 %desc_b, %desc_b, 2;"
_BACK = (
    "add.s64 %desc_a, %desc_a, -14; xor.b64 %desc_a, %desc_a, 128; add.s64 %desc_b, %desc_b, -14; xor.b64 %desc_b, %desc_b, 128;"
)
#: Trips through a loop: those of the timed one, and enough of the other to outlast them.
_FEW, _MANY, _OUTLAST = 4, 12, 400

_SCALE = "0f3e38aa3b"
_REGISTERS = (
    f".reg .f32 %s<{SCORES}>, %o<{OUT}>, %high<2>, %low<2>, %before<2>, %norm<2>, %m<2>, %g<3>;"
    f".reg .b32 %w<{SCORES // 2}>, %trip; .reg .pred %never, %more, %streams;"
)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return "<what> beside <stream>" -> cycles of a trip through the loop [of one warpgroup, of two, ...], and "wgmma <stream>
    beside <what>" -> cycles of a wgmma [of softmax beside none; beside one and two warpgroups]."""
    results: dict[str, Any] = {}
    for stream, wgmma in STREAMS.items():
        groups = (1, 2, 3) if wgmma is None else (1, 2) if wgmma[0] <= 128 else (1,)
        results[f"softmax beside {stream}"] = [_trip(launch, softmax(), g, wgmma) for g in groups]
        for name, (form, most) in FORMS.items():
            if stream not in ("nothing", "ss n128", "rs n64") and most == 1:
                continue
            trips = [_trip(launch, _repeated(form), g, wgmma) for g in groups[:most]]
            results[f"{name} beside {stream}"] = [round(trip / UNROLLED, 3) for trip in trips]
        if wgmma is not None:
            results[f"wgmma {stream} beside softmax"] = [_operation(launch, softmax(), g, wgmma) for g in (0, *groups)]
            for name in STARVING:
                body = _repeated(FORMS[name][0])
                results[f"wgmma {stream} beside {name}"] = [_operation(launch, body, g, wgmma) for g in groups]
    return results


def _trip(launch: Callable[..., Any], body: str, groups: int, wgmma: tuple[int, str] | None) -> float:
    """Return the cycles of a trip of the lane code, mean over its warps."""
    warps = 4 * (groups + (wgmma is not None))
    few, many = (cycles(launch, kernel(body, groups, wgmma, trips, _OUTLAST), warps)[: 4 * groups] for trips in (_FEW, _MANY))
    return round(float(np.mean(np.subtract(many, few))) / (_MANY - _FEW), 2)


def _operation(launch: Callable[..., Any], body: str, groups: int, wgmma: tuple[int, str]) -> float:
    """Return the cycles of a wgmma beside ``groups`` warpgroups that go through ``body``."""
    few, many = (
        max(cycles(launch, kernel(body, groups, wgmma, _OUTLAST, trips), 4 * (groups + 1))[4 * groups :])
        for trips in (_MANY, 2 * _MANY)
    )
    return round((many - few) / (_MANY * _OPERATIONS), 2)


def kernel(body: str, groups: int, wgmma: tuple[int, str] | None, trips: int, operations: int) -> str:
    """Return the text of ``groups`` warpgroups that go through ``body`` ``trips`` times, and one behind them that goes through
    eight wgmma of a kind (width, source of A) ``operations`` times."""
    registers, stream = _REGISTERS, ""
    if wgmma is not None:
        registers += wgmma_rate.registers(wgmma[0])
        multiply = f"\n    {_STEP}\n    ".join([wgmma_rate.operation(*wgmma)] * _OPERATIONS)
        stream = f"""{wgmma_rate.setup(wgmma[0])}
    add.u32 %trip, %zero, {operations};
    {RESTART}
STREAM_AGAIN:
    wgmma.fence.sync.aligned;
    {multiply}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    {_BACK}
    add.s32 %trip, %trip, -1;
    setp.ne.s32 %more, %trip, 0;
    @%more bra STREAM_AGAIN;
    wgmma.wait_group.sync.aligned 0;
    mov.b32 %x, %acc0;"""
    text = f"""{f"shfl.sync.idx.b32 %trip, %warp, 0, 31, 0xffffffff; setp.ge.u32 %streams, %trip, {4 * groups};" if wgmma else ""}
    {"@%streams bra STREAM;" if wgmma else ""}
    {_START}
    add.u32 %trip, %zero, {trips};
    {RESTART}
LANES_AGAIN:
    {body}
    add.s32 %trip, %trip, -1;
    setp.ne.s32 %more, %trip, 0;
    @%more bra LANES_AGAIN;
    {_END}
    bra LAST;
STORE:
    {_STORE}
    bra STORED;
STREAM:
    {stream}
LAST:
"""
    return timed_kernel(text, registers, "", wgmma_rate.SHARED_BYTES, 128 * (groups + (wgmma is not None)))


def softmax() -> str:
    """Return the softmax of ``tk_programs/attention.py`` for a warp: two rows of scores in each thread."""
    rows: tuple[list[int], list[int]] = ([i for i in range(SCORES) if not i & 2], [i for i in range(SCORES) if i & 2])
    lines = [f"mul.rn.f32 %before{r}, %high{r}, {_SCALE};" for r in (0, 1)]
    lines += _reduced("max.f32", rows)
    lines += [f"max.f32 %high{r}, %high{r}, %m{r};" for r in (0, 1)]
    lines += [f"mul.rn.f32 %low{r}, %high{r}, 0fbe38aa3b;" for r in (0, 1)]
    lines += [f"mul.rn.f32 %s{i}, %s{i}, {_SCALE};" for i in range(SCORES)]
    lines += [f"add.rn.f32 %s{i}, %s{i}, %low{i >> 1 & 1};" for i in range(SCORES)]
    lines += [f"ex2.approx.ftz.f32 %s{i}, %s{i};" for i in range(SCORES)]
    lines += [f"add.rn.f32 %before{r}, %before{r}, %low{r};" for r in (0, 1)]
    lines += [f"ex2.approx.ftz.f32 %before{r}, %before{r};" for r in (0, 1)]
    lines += [f"mul.rn.f32 %norm{r}, %norm{r}, %before{r};" for r in (0, 1)]
    lines += _reduced("add.rn.f32", rows)
    lines += [f"add.rn.f32 %norm{r}, %norm{r}, %m{r};" for r in (0, 1)]
    lines += [f"cvt.rn.bf16x2.f32 %w{i}, %s{2 * i + 1}, %s{2 * i};" for i in range(SCORES // 2)]
    lines += [f"mul.rn.f32 %o{i}, %o{i}, %before{i >> 1 & 1};" for i in range(OUT)]
    return "\n    ".join([*lines, "@%never bra STORE;", "STORED:"])


def _reduced(opcode: str, rows: tuple[list[int], list[int]]) -> list[str]:
    """Return the reduction of each row to ``%m0`` and ``%m1``, within the thread and over the four threads of the row."""
    lines = [f"{opcode} %m{r}, %s{rows[r][0]}, %s{rows[r][1]};" for r in (0, 1)]
    lines += [f"{opcode} %m{r}, %m{r}, %s{rows[r][k]};" for k in range(2, SCORES // 2) for r in (0, 1)]
    for distance in (1, 2):
        lines += [f"mov.b32 %w{r}, %m{r}; shfl.sync.bfly.b32 %w{r}, %w{r}, {distance}, 31, 0xffffffff;" for r in (0, 1)]
        lines += [f"mov.b32 %g1, %w{r}; {opcode} %m{r}, %m{r}, %g1;" for r in (0, 1)]
    return lines


#: Accumulators of four instructions in a row.
_OUT = [[8 * k + n for n in range(8)] for k in range(4)]


def _repeated(form: str) -> str:
    lines = [form.format(i=4 * k % SCORES + 4 * k // SCORES, w=k % (SCORES // 2), o=_OUT[k % 4]) for k in range(UNROLLED)]
    return "\n    ".join([*lines, "STORED:"])


#: Never reached, but only the machine knows: what takes the weights of a trip.
_STORE = "\n    ".join(
    f"st.volatile.shared.v4.b32 [%smem], {{%w{i}, %w{i + 1}, %w{i + 2}, %w{i + 3}}};" for i in range(0, SCORES // 2, 4)
)
_START = (
    "setp.ne.u32 %never, %zero, 0;\n    cvt.rn.f32.u32 %g1, %zero;\n    mov.f32 %g2, %g1;\n    "
    + "".join(f"add.u32 %trip, %lane, {i + 1}; cvt.rn.f32.u32 %s{i}, %trip;\n    " for i in range(SCORES))
    + "".join(f"mov.f32 %o{i}, %s{i};\n    " for i in range(OUT))
    + "".join(f"add.u32 %w{i}, %lane, {i};\n    " for i in range(SCORES // 2))
    + "".join(
        f"mov.f32 %high{r}, %s{r}; mov.f32 %low{r}, %s{r}; mov.f32 %before{r}, %s{r}; mov.f32 %norm{r}, %s{r};\n    "
        for r in (0, 1)
    )
)
_END = "".join(
    f"mov.b32 %trip, {name}; xor.b32 %x, %x, %trip;\n    "
    for name in [f"%s{i}" for i in range(SCORES)] + [f"%o{i}" for i in range(OUT)] + [f"%w{i}" for i in range(SCORES // 2)]
)
