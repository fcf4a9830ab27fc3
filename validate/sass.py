"""Predicted machine code against real machine code: what ``ptxas`` makes of a kernel, read from its cubin.

Needs ``ptxas`` (CUDA toolkit) and ``nvdisasm`` (also in the package nvidia-cuda-nvdisasm) on the path; without them the
counts in ``validate/silicon/sass.json`` serve. The stall count of an instruction says how many cycles the assembler knows
that its warp must wait; what it leaves to scoreboards is not in it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h100sim.errors import UsageError

SILICON = Path(__file__).parent / "silicon"

#: Bits of the control code of a 128-bit instruction. Published since Volta by CuAssembler and others; here: the stall count.
_STALL_SHIFT, _STALL_MASK = 105, 0xF

_LINE = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(.*?)\s*;?\s*/\* (0x[0-9a-f]{16}) \*/")
_SECOND = re.compile(r"^\s*/\* (0x[0-9a-f]{16}) \*/")


@dataclass(frozen=True)
class MachineInstruction:
    """One instruction of machine code: its address in its function, its text, its stall count."""

    address: int
    text: str
    stall: int

    @property
    def opcode(self) -> str:
        """The name with its modifiers, without a guard."""
        words = self.text.split()
        return words[1] if words[0].startswith("@") else words[0]


def disassemble(ptx: str, tools: str | None = None) -> list[MachineInstruction]:
    """Return the machine code of a PTX text with one kernel, without the padding behind it.

    ``tools``: a path to look for ptxas and nvdisasm, else PATH. Raises UsageError without them, or for text that ptxas refuses.
    """
    ptxas, nvdisasm = (shutil.which(name, path=tools) for name in ("ptxas", "nvdisasm"))
    if ptxas is None or nvdisasm is None:
        found = "only ptxas" if ptxas else "only nvdisasm" if nvdisasm else "none of them"
        raise UsageError(f"comparison with machine code must have ptxas and nvdisasm on PATH, not {found}")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = subprocess.run([ptxas, "-arch=sm_90a", source, "-o", cubin], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"PTX text must be what ptxas accepts, not this ({done.stderr.strip().splitlines()[0]})")
        listing = subprocess.run([nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True, check=True).stdout
    return parse(listing)


def parse(listing: str) -> list[MachineInstruction]:
    """Return the instructions of an ``nvdisasm -c -hex`` listing up to the endless loop that ends a function."""
    found: list[MachineInstruction] = []
    pending: tuple[int, str, int] | None = None
    for line in listing.splitlines():
        if match := _LINE.search(line):
            pending = int(match[1], 16), match[2], int(match[3], 16)
        elif pending and (match := _SECOND.match(line)):
            word = pending[2] | int(match[1], 16) << 64
            found.append(MachineInstruction(pending[0], pending[1], word >> _STALL_SHIFT & _STALL_MASK))
            pending = None
    while found and found[-1].opcode in ("NOP", "BRA"):
        found.pop()
    return found


def counts(code: Sequence[MachineInstruction]) -> dict[str, int]:
    """Return how many instructions there are and the sum of their stall counts."""
    return {"instructions": len(code), "stalls": sum(instruction.stall for instruction in code)}


def predicted(ptx: str, kernel: str) -> float:
    """Return how many machine instructions the simulator takes a kernel to have."""
    from h100sim import RawModule
    from h100sim.outline import machine_instructions

    outline = RawModule(code=ptx).get_function(kernel).program.outline
    assert outline is not None
    return machine_instructions(outline)


def committed() -> dict[str, Any]:
    """Return the counts that ptxas gave when they were committed: case -> program, config, ptxas version and counts."""
    return json.loads((SILICON / "sass.json").read_text())
