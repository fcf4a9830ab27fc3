"""Fragments: which thread holds which element of a matrix, in which register and at which bit.

All fragments of mma.sync and wgmma follow one rule. With ``p`` elements in a register, lane l of a warp holds, in
register r, row l/4 + 8*(r&1) and columns p*(l%4) + 4*p*(r>>1) onwards. Accumulators hold pairs of neighbouring columns,
in one register (f16) or two. In wgmma, warp w of the warpgroup has rows 16*w to 16*w + 15.

Spec: PTX ISA 9.1, "Register Fragments and Shared Memory Matrix Layouts" (wgmma), "Matrix Fragments for mma.m16n8k16"
and its neighbours, "Warp-level matrix load instruction: ldmatrix". Measured: tests/data/wgmma_fragments.npz (A and D of
every type, b1 among them, whose A no figure shows), tests/data/matrix_moves.npz (ldmatrix).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from h100sim.dtypes import ElementType, element_type
from h100sim.errors import PtxError, UsageError
from h100sim.numerics.wgmma import parse_wgmma

#: One record per element: warp of the warpgroup (0 for warp-level instructions), lane, register, bit in the register.
FRAGMENT = np.dtype([("warp", "i4"), ("lane", "i4"), ("register", "i4"), ("bit", "i4")])

_MMA = re.compile(
    r"mma(?P<sparse>\.sp(::ordered_metadata)?)?\.sync\.aligned\.m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)"
    r"(?P<rest>(\.[a-z0-9:]+)*)"
)
_MATRIX_MOVE = re.compile(
    r"(?P<what>ldmatrix|stmatrix|movmatrix)\.sync\.aligned\.m8n8(\.x(?P<count>[124]))?(?P<trans>\.trans)?"
    r"(\.shared(::cta)?)?\.b16"
)
#: Legal K of mma.sync by bits of A; M is 16 except for the m8n8 shapes. Spec: PTX ISA 9.1, "Matrix Shape".
_DEPTHS: dict[int, tuple[int, ...]] = {16: (8, 16), 32: (4, 8), 8: (16, 32), 4: (32, 64), 1: (128, 256), 64: (4, 8, 16)}
_DEPTHS_M8: dict[int, tuple[int, ...]] = {8: (16,), 4: (32,), 1: (128,), 64: (4,)}


class Fragment(np.ndarray):
    """Owners of a register operand: an array of FRAGMENT records (rows, columns), which notebooks show as a picture.

    ``title`` says of what; parts of it and arrays computed from it have none and no picture.
    """

    title: tuple[str, ...] = ()

    def __array_finalize__(self, source: object) -> None:
        self.title = ()

    @classmethod
    def of(cls, owners: np.ndarray, *title: str) -> Fragment:
        found = owners.view(cls)
        found.title = title
        return found

    def _repr_svg_(self) -> str | None:
        from .pictures import draw_owners

        return draw_owners(self, *self.title) if self.title else None


def fragment(instr: str, which: str) -> Fragment:
    """Return the owner of every element of a register operand, as records (warp, lane, register, bit).

    ``wgmma.mma_async...``: ``"a"`` gives (64, K), ``"d"`` gives (64, N). ``mma.sync...``: ``"a"`` (M, K), ``"b"``
    (N, K), ``"c"`` and ``"d"`` (M, N). ``ldmatrix``, ``stmatrix``, ``movmatrix``: ``"d"`` gives (8*count, 8), matrices
    below each other, rows as in shared memory. K counts stored elements: a sparse A has K/2. Registers are 32 bits
    wide, except for f64.
    PtxError for an instruction that sm_90a lacks, UsageError for an operand that it does not keep in registers.
    """
    if not isinstance(instr, str):
        raise _unknown(instr)
    match = _MATRIX_MOVE.fullmatch(instr)
    if instr.startswith("wgmma"):
        owners, axes = _wgmma(instr, which), "mk" if which == "a" else "mn"
    elif instr.startswith("mma"):
        owners, axes = _mma(instr, which), {"a": "mk", "b": "nk"}.get(which, "mn")
    elif match:
        owners, axes = _matrix_move(match, which), ""
    else:
        raise _unknown(instr)
    name = f"{instr.split('.')[0]} operand {which}, {' x '.join(map(str, owners.shape))}"
    return Fragment.of(owners, name, instr, f"Rows are {axes[0]}, columns {axes[1]}." if axes else "Rows as in shared memory.")


def _unknown(instr: str) -> PtxError:
    return PtxError(f"instruction must be wgmma.mma_async, mma.sync or a matrix move of m8n8 b16, not {instr}")


def inverse(fragment: np.ndarray) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
    """Return, for each (warp, lane, register), its elements (row, column) from the lowest bit up."""
    held: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for (row, column), owner in np.ndenumerate(fragment):
        key = (int(owner["warp"]), int(owner["lane"]), int(owner["register"]))
        held.setdefault(key, []).append((int(owner["bit"]), row, column))
    return {key: [(row, column) for _, row, column in sorted(items)] for key, items in held.items()}


def multiplicand(rows: int, depth: int, bits: int) -> np.ndarray:
    """Return the fragment (rows, depth) of an A of 8, 16 or 64 rows or of a B, whose 8 columns are the rows here."""
    row, k = np.indices((rows, depth))
    per_register = max(32 // bits, 1)
    block = k // (4 * per_register)
    owner = np.empty((rows, depth), FRAGMENT)
    owner["warp"] = row // 16
    owner["lane"] = 4 * (row % 8) + k % (4 * per_register) // per_register
    owner["register"] = block if rows == 8 else 2 * block + row % 16 // 8
    owner["bit"] = k % per_register * bits
    return owner


def accumulator(rows: int, columns: int, bits: int) -> np.ndarray:
    """Return the fragment (rows, columns) of a C or D (8, 16 or 64 rows) of 16-, 32- or 64-bit elements."""
    row, column = np.indices((rows, columns))
    owner = np.empty((rows, columns), FRAGMENT)
    pair = column // 8 if rows == 8 else 2 * (column // 8) + row % 16 // 8
    owner["warp"] = row // 16
    owner["lane"] = 4 * (row % 8) + column % 8 // 2
    owner["register"] = pair if bits == 16 else 2 * pair + column % 2
    owner["bit"] = 16 * (column % 2) if bits == 16 else 0
    return owner


def _wgmma(instr: str, which: str) -> np.ndarray:
    instruction = parse_wgmma(instr)
    if which == "d":
        return accumulator(64, instruction.n, instruction.d.bits)
    if which == "a":
        return multiplicand(64, instruction.k // (2 if instruction.is_sparse else 1), instruction.a.bits)
    raise UsageError(f"register operand of wgmma must be a or d, not {which} (B is always in shared memory)")


@dataclass(frozen=True)
class _MmaShape:
    m: int
    n: int
    k: int
    d_bits: int
    a_bits: int
    b_bits: int
    is_sparse: bool


def _mma(instr: str, which: str) -> np.ndarray:
    shape = _mma_shape(instr)
    if which == "a":
        return multiplicand(shape.m, shape.k // (2 if shape.is_sparse else 1), shape.a_bits)
    if which == "b":
        return multiplicand(8, shape.k, shape.b_bits)
    if which in ("c", "d"):
        return accumulator(shape.m, shape.n, shape.d_bits)
    raise UsageError(f"operand of mma must be a, b, c or d, not {which}")


def _mma_shape(instr: str) -> _MmaShape:
    match = _MMA.fullmatch(instr)
    if not match:
        raise PtxError(f"opcode must be mma[.sp].sync.aligned.mMnNkK.row.col.dtype.atype.btype.ctype, not {instr}")
    m, n, k = (int(match[name]) for name in "mnk")
    parts = match["rest"].split(".")[1:]
    types = [p for p in parts if _is_type(p)]
    if len(types) != 4:
        raise PtxError(f"mma must have four types, not {len(types)}")
    d, a, b = (element_type(name).bits for name in types[:3])
    is_sparse = match["sparse"] is not None
    depths = (_DEPTHS if m == 16 else _DEPTHS_M8).get(a, ()) if m in (8, 16) else ()
    legal = tuple(2 * x for x in depths) if is_sparse else depths
    if n != 8 or k not in legal:
        message = f"mma shape of {types[1]} must be m16n8 or m8n8 with a K that sm_90a has, not m{m}n{n}k{k}"
        raise PtxError(message, rule='PTX ISA 9.1, "Matrix Shape"')
    return _MmaShape(m, n, k, d, a, b, is_sparse)


def _is_type(name: str) -> bool:
    try:
        element: ElementType | None = element_type(name)
    except PtxError:
        element = None
    return element is not None


def _matrix_move(match: re.Match[str], which: str) -> np.ndarray:
    if which != "d":
        raise UsageError(f"register operand of {match['what']} must be d, not {which}")
    count = int(match["count"] or 1)
    row, column = np.indices((8 * count, 8))
    matrix, row = row // 8, row % 8
    if match["trans"]:
        row, column = column, row
    owner = np.zeros((8 * count, 8), FRAGMENT)
    owner["lane"] = 4 * row + column // 2
    owner["register"] = matrix
    owner["bit"] = 16 * (column % 2)
    return owner
