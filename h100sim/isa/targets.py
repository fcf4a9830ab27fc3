"""Which ``.target`` an instruction needs: a text for an older architecture may not use what only sm_90 or sm_90a has.

Measured: ptxas 13.0, one statement of each family for every target from sm_75 to sm_90a; tests/isa/test_targets.py names them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ptx.module import Instruction, Operand, Special, Vector

_SM_80, _SM_89, _SM_90, _SM_90A = "sm_80", "sm_89", "sm_90", "sm_90a"

#: By the first parts of the opcode.
_BY_NAME = {
    **dict.fromkeys(("wgmma", "setmaxnreg", "tensormap.replace"), _SM_90A),
    **dict.fromkeys(
        (
            "elect", "mapa", "getctarank", "barrier.cluster", "cp.async.bulk", "cp.reduce", "griddepcontrol", "stmatrix",
            "st.async", "red.async", "mbarrier.expect_tx", "mbarrier.complete_tx", "mbarrier.try_wait",
            "mbarrier.arrive.expect_tx", "mbarrier.arrive_drop.expect_tx", "fence.mbarrier_init", "fence.proxy.async",
            "fence.proxy.tensormap::generic", "prefetch.tensormap", "tensormap.cp_fenceproxy", "min.relu", "max.relu",
            "cvt.rn.tf32", "cvt.rz.tf32", *(f"{base}.bf16{x}" for base in ("add", "sub", "mul") for x in ("", "x2")),
            *(f"{base}.{sign}16x2" for base in ("add", "min", "max") for sign in "us"),
        ),
        _SM_90,
    ),
    **dict.fromkeys(("cp.async", "mbarrier", "redux", "createpolicy", "discard", "applypriority"), _SM_80),
}  # fmt: skip
#: By a modifier anywhere in the opcode.
_BY_MODIFIER = {
    **dict.fromkeys(("cluster", "shared::cluster", "multicast::cluster"), _SM_90),
    "L2::cache_hint": _SM_80,
}
_BY_SPECIAL = dict.fromkeys(
    ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank", "is_explicit_cluster",
     "aggr_smem_size"),
    _SM_90,
)  # fmt: skip
_FP8 = ("e4m3", "e5m2", "e4m3x2", "e5m2x2")
_VECTORS = ("v2", "v4", "v8")


def missing_target(instruction: Instruction, target: str) -> str:
    """Return the least target that an instruction needs if the text's own is less, else ""."""
    if target == _SM_90A:
        return ""
    needed = max(_needs(instruction), key=_rank, default="")
    return needed if _rank(needed) > _rank(target) else ""


def _rank(target: str) -> int:
    """Return a number that is larger for a target that has more."""
    return 2 * int(target[3:].rstrip("af")) + (target == _SM_90A) if target else 0


def _needs(instruction: Instruction) -> Iterator[str]:
    parts = instruction.opcode.split(".")
    for n in range(min(3, len(parts)), 0, -1):
        if found := _BY_NAME.get(".".join(parts[:n])):
            yield found
            break
    for part in parts:
        if found := _BY_MODIFIER.get(part):
            yield found
        elif part in _FP8:
            yield _SM_89
    is_wide = set(_VECTORS) & set(instruction.modifiers) or instruction.types[-1:] in (("bf16",), ("b128",))
    if instruction.base in ("atom", "red") and is_wide:
        yield _SM_90
    if instruction.base == "mma" and instruction.types[:1] == ("f64",) and not instruction.has("m8n8k4"):
        yield _SM_90
    for operand in instruction.operands:
        yield from _special(operand)


def _special(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Special):
        if found := _BY_SPECIAL.get(operand.name.partition(".")[0]):
            yield found
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _special(element)
