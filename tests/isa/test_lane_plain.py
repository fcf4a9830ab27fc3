"""The same text of every form in plain Python, with Numba off: two lane masks of captured inputs against silicon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json
from pathlib import Path
import numpy as np
from h100sim.isa import lane
from h100sim.numerics.scalar import ROW_BYTES
from h100sim.ptx.module import Imm, Sink

data = Path(r"{data}")
forms = json.loads((data / "ptx_scalar.json").read_text())
words, results = (np.load(data / "ptx_scalar.npz")[name] for name in "XY")
wrong = []
for form, expected in zip(forms, results):
    sources = tuple(Imm(int(t[1:])) if t[0] == "#" else Sink() for t in form["inputs"])
    compiled = lane.natural_form(form["op"], sources)
    offsets = np.cumsum([0, *(ROW_BYTES[k] for k in (*compiled.outs, *compiled.ins))]).astype(np.int32)
    regs = np.zeros(offsets[-1], np.uint8)
    inputs = [words[480:, k] for k, t in enumerate(form["inputs"]) if t[0] != "#"]
    inputs += [np.full(32, 7, np.uint64)] * form["op"].startswith("bfi.")
    types = [t for t in lane.operation(form["op"], sources=sources).ins if t != "#"]
    for column, type_, start in zip(inputs, types, offsets[len(compiled.outs) :]):
        width = lane.width_of_type(type_)
        row = np.ascontiguousarray(column & np.uint64((1 << width) - 1) if width < 64 else column)
        row = row if width == 64 else row.astype(np.uint32)
        regs[start : start + row.nbytes] = row.view(np.uint8)
    mask = 0xFFFFFFF5
    lane.interpret(compiled, regs, mask, offsets)
    active = (mask >> np.arange(32)) & 1 == 1
    if compiled.outs[0] == "pred":
        got = (int(regs[:4].view(np.uint32)[0]) >> np.arange(32)) & 1
    else:
        got = regs[:256].view(np.uint64) if compiled.outs[0] == "u64" else regs[:128].view(np.uint32)
    narrow = np.uint64(0xFF) if form["op"].split(".")[-2] in ("s8", "u8") else np.uint64(2**64 - 1)
    same = (got[:32].astype(np.uint64) & narrow) == (expected[480:] & narrow)
    if not np.all(same[active]) or np.any(got[:32][~active]):
        wrong.append(form["op"])
print(len(forms), wrong)
"""


def test_plain_python_gives_the_same_bits():
    script = SCRIPT.format(data=Path(__file__).parents[1] / "data")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.strip() == "589 []", run.stdout + run.stderr
