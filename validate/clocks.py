"""Clock records: adds to a kernel's PTX the few instructions that write down when each of its CTAs ran.

The records go to a variable of the module, so that the kernel's parameters, and with them the way it is launched, stay
the same. Thread 0 writes the clock of its SM and the global timer when it enters the kernel; every thread raises the
end of its CTA's record when it leaves it. What the kernel computes does not change; its time does, by about the cost of
the first store. The plain text is what results are compared on, the recorded text is for cycles.
"""

from __future__ import annotations

import re

import numpy as np

from h100sim.errors import UsageError

VARIABLE = "h100sim_clocks"

#: One record per CTA: clock of the SM at start and end (cycles), global timer at start and end (ns), SM.
RECORD = np.dtype([("start", "u8"), ("end", "u8"), ("start_ns", "u8"), ("end_ns", "u8"), ("sm", "u8")])

_START = """\
    {{
    .reg .pred %clk_p, %clk_q;
    .reg .b32 %clk_t, %clk_c, %clk_n;
    .reg .b64 %clk_a, %clk_v;
    mov.u32 %clk_t, %tid.x;
    mov.u32 %clk_c, %tid.y;
    or.b32 %clk_t, %clk_t, %clk_c;
    mov.u32 %clk_c, %tid.z;
    or.b32 %clk_t, %clk_t, %clk_c;
    setp.ne.u32 %clk_p, %clk_t, 0;
    @%clk_p bra {label};
{address}
    mov.u64 %clk_v, %clock64;
    st.global.u64 [%clk_a], %clk_v;
    mov.u64 %clk_v, %globaltimer;
    st.global.u64 [%clk_a+16], %clk_v;
    mov.u32 %clk_t, %smid;
    cvt.u64.u32 %clk_v, %clk_t;
    st.global.u64 [%clk_a+32], %clk_v;
{label}:
    }}
"""

_END = """\
    {{
    .reg .b32 %clk_t, %clk_c, %clk_n;
    .reg .b64 %clk_a, %clk_v;
{address}
    mov.u64 %clk_v, %clock64;
    red.global.max.u64 [%clk_a+8], %clk_v;
    mov.u64 %clk_v, %globaltimer;
    red.global.max.u64 [%clk_a+24], %clk_v;
    }}
"""

#: The address of this CTA's record: CTAs are numbered x fastest, as in a trace.
_ADDRESS = f"""\
    mov.u32 %clk_t, %ctaid.z;
    mov.u32 %clk_n, %nctaid.y;
    mov.u32 %clk_c, %ctaid.y;
    mad.lo.u32 %clk_t, %clk_t, %clk_n, %clk_c;
    mov.u32 %clk_n, %nctaid.x;
    mov.u32 %clk_c, %ctaid.x;
    mad.lo.u32 %clk_t, %clk_t, %clk_n, %clk_c;
    mov.u64 %clk_a, {VARIABLE};
    mad.wide.u32 %clk_a, %clk_t, {RECORD.itemsize}, %clk_a;"""

_LEAVES = re.compile(
    r"^(?P<label>[ \t]*(?:[\w$]+:)?)[ \t]*(?:@(?P<negated>!?)(?P<guard>[%\w$]+)[ \t]+)?(?P<op>ret|exit)(?:\.uni)?;",
    re.M,
)


def add_clock_records(ptx: str, kernel: str, ctas: int) -> str:
    """Return the text with clock records of ``ctas`` CTAs for an entry. Raises UsageError if it has no such entry."""
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\b", ptx)
    if entry is None:
        raise UsageError(f"kernel must be an entry of the module, not {kernel}")
    opens = ptx.index("{", _end_of_parameters(ptx, entry.end()))
    closes = _closing_brace(ptx, opens)
    body = _with_ends(ptx[opens + 1 : closes])
    # Declarations come first in a body, but a block may stand anywhere behind them: before the first instruction.
    at = _first_instruction(body)
    body = body[:at] + _START.format(label="H100SIM_CLOCK_STARTED", address=_ADDRESS) + body[at:]
    start = ptx.rindex("\n", 0, entry.start()) + 1
    declaration = f".visible .global .align 8 .b8 {VARIABLE}[{ctas * RECORD.itemsize}];\n\n"
    return ptx[:start] + declaration + ptx[start : opens + 1] + body + ptx[closes:]


def cycles_of(records: np.ndarray) -> np.ndarray:
    """Return the cycles of each CTA (RECORD array) from its first instruction to the end of its last thread.

    Raises UsageError for a CTA that never wrote its end: :func:`add_clock_records` missed a way out of its kernel.
    """
    if (records["end"] == 0).any():
        raise UsageError(f"CTA must have recorded its end, not left it at 0 (CTA {int(np.argmax(records['end'] == 0))})")
    return (records["end"] - records["start"]).astype(np.int64)


def _end_of_parameters(ptx: str, at: int) -> int:
    """Return the position after the parameter list, if there is one."""
    match = re.compile(r"\s*\(").match(ptx, at)
    if match is None:
        return at
    return ptx.index(")", match.end()) + 1


def _closing_brace(ptx: str, opens: int) -> int:
    depth = 0
    for match in re.compile(r"//[^\n]*|/\*.*?\*/|[{}]", re.S).finditer(ptx, opens):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    raise UsageError("PTX text must have a closing brace for every opening one, not fewer")


def _first_instruction(body: str) -> int:
    """Return where the first line starts that is neither empty, a comment, a directive nor a label."""
    at = 0
    for line in body.splitlines(keepends=True):
        word = line.strip()
        if word and not word.startswith((".", "//", "{")):
            return at
        at += len(line)
    return at


def _with_ends(body: str) -> str:
    """Put a record before every ``ret`` and ``exit`` (branched around if guarded) and at an end without either."""
    count = 0

    def record(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        end = f"{_END.format(address=_ADDRESS)}    {match['op']};"
        if not match["guard"]:
            return f"{match['label']}\n{end}"
        label = f"H100SIM_CLOCK_{count}"
        inverse = "" if match["negated"] else "!"
        return f"{match['label']}\n    @{inverse}{match['guard']} bra {label};\n{end}\n{label}:"

    body = _LEAVES.sub(record, body)
    last = [line.strip() for line in body.splitlines() if line.strip()]
    return body if last and last[-1] in ("ret;", "exit;") else body + _END.format(address=_ADDRESS)
