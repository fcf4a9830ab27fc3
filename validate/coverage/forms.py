"""Every form of every instruction, written as text that an assembler takes.

forms.txt has the instructions that touch memory, other lanes, units or time. A line is an opcode and its operands; ``[a|b|]`` is
a choice, the empty one included where written. In the operands ``h``, ``r``, ``d``, ``q``, ``p`` and ``f`` are registers of 16, 32,
64 and 128 bits, predicates and f32 registers, each use a new one; ``t`` is a register as wide as the opcode's last type, ``v`` a
vector of them as long as its ``.v2``, ``.v4`` or ``.v8`` says; ``<r4>`` is ``{r, r, r, r}``. Everything else stands for itself. The
forms of lane instructions come from their own tables, in :mod:`h100sim.isa`.

Spec: PTX ISA 9.1, "Instructions".
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from h100sim.isa import lane
from h100sim.ptx.module import Imm, Sink
from h100sim.ptx.types import SIZES, split_opcode

_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_TOKEN = re.compile(r"<([a-z])(\d+)>|(?<![\w%.:$])([hrdqpftv])(?!\w)")
_KIND_OF_BYTES = {0: "p", 1: "h", 2: "h", 4: "r", 8: "d", 16: "q"}

#: Declarations around a form: registers, a variable, a parameter, a function and the tables that a form may name.
_KERNEL = """.version 9.0
.target sm_90a
.address_size 64
.const .align 16 .b8 constant[16];
.func function() {{ ret; }}
.visible .entry kernel(.param .align 16 .b8 parameter[16])
{{
.reg .b16 h<40>; .reg .b32 r<160>; .reg .b64 d<40>; .reg .b128 q<8>; .reg .pred p<8>; .reg .f32 f<160>;
targets: .branchtargets target;
.param .align 16 .b8 argument[16];
{form};
target:
ret;
}}
"""


#: Sources of lop3, whose look-up table is a part of the form.
LOOKUP = (Sink(), Sink(), Sink(), Imm(0x1B), Sink())


@dataclass(frozen=True)
class Pattern:
    """One line: the pattern (opcode and operands), and the heading that it stands under."""

    text: str
    family: str

    @property
    def opcode(self) -> str:
        return self.text.split(" ")[0]

    @property
    def forms(self) -> tuple[str, ...]:
        """Every form that the pattern stands for, its operands still letters."""
        pieces = _CHOICE.split(self.text)
        choices = [piece.split("|") if k % 2 else [piece] for k, piece in enumerate(pieces)]
        return tuple("".join(choice) for choice in itertools.product(*choices))


def instruction_of(form: str) -> str:
    """Return the text of an instruction: the letters of a form become registers, a new one each."""
    opcode, _, operands = form.partition(" ")
    _, modifiers, types = split_opcode(opcode)
    kind = _KIND_OF_BYTES[SIZES.get(types[-1], 4)] if types else "r"
    length = next((int(m[1]) for m in modifiers if m in ("v2", "v4", "v8")), 1)
    used: dict[str, int] = {}

    def name(letter: str) -> str:
        used[letter] = used.get(letter, 0) + 1
        return f"{letter}{used[letter]}"

    def replace(token: re.Match) -> str:
        letter, count = (token[1], int(token[2])) if token[1] else (token[3], 0)
        if letter == "v":
            letter, count = kind, length if length > 1 else 0
        letter = kind if letter == "t" else letter
        return "{" + ", ".join(name(letter) for _ in range(count)) + "}" if count else name(letter)

    return f"{opcode} {_TOKEN.sub(replace, operands)}".strip()


def kernel_of(form: str) -> str:
    """Return the text of a module whose kernel has one form."""
    return kernel_of_instructions([instruction_of(form)])[0]


def kernel_of_instructions(instructions: list[str]) -> tuple[str, int]:
    """Return the text of a module whose kernel has instructions, one a line, and the line of the first."""
    before, after = _KERNEL.format(form="\n").split("\n\n;\n")
    body = "\n".join(f"{text};" for text in instructions)
    return f"{before}\n{body}\n{after}", before.count("\n") + 2


def lane_operation(opcode: str) -> lane.Operation:
    """Return what a lane opcode computes, with as many operands as its form has."""
    count = next((int(part[1]) for part in opcode.split(".") if part in ("v2", "v4")), 1)
    return lane.operation(opcode, count, LOOKUP if opcode.startswith("lop3") else (Sink(),) * count if count > 1 else ())


def lane_form(opcode: str) -> str:
    """Return the form of a lane instruction: registers as wide as the types that its operation takes."""
    operation = lane_operation(opcode)
    outs = [_letter(t) for t in operation.outs]
    ins = ["0x1B" if t == "#" else _letter(t) for t in operation.ins]
    if ".v2." in opcode or ".v4." in opcode:
        return f"{opcode} {_vector(outs)}, {_vector(ins)}"
    return f"{opcode} {', '.join(['|'.join(outs), *ins])}"


def _vector(letters: list[str]) -> str:
    return f"<{letters[0]}{len(letters)}>"


def _letter(type_: str) -> str:
    return _KIND_OF_BYTES[{1: 0, 8: 1, 16: 2, 32: 4, 64: 8, 128: 16}[lane.width_of_type(type_)]]


@cache
def patterns() -> tuple[Pattern, ...]:
    """Return every line of forms.txt."""
    found, family = [], ""
    for line in (Path(__file__).parent / "forms.txt").read_text().splitlines():
        if line.startswith("# "):
            family = line[2:]
        elif line:
            found.append(Pattern(line, family))
    return tuple(found)
