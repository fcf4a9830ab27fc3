"""Instructions that are refused by name, and why: those of other chips, those of other parts of a GPU, those without .sync.

Spec: PTX ISA 9.1, "Instructions". Which of them sm_90a has: ptxas 13.0, tests/data/ptxas_forms.json.
"""

from __future__ import annotations

_LATER = "must be one that sm_90a has, not {opcode}, which needs sm_100 or later"
_TEXTURE = "must be one that is simulated, not {opcode}: textures and surfaces are not"
_VIDEO = "must be one that is simulated, not {opcode}: video instructions are not"
_SEVERAL = "must be one that is simulated, not {opcode}: memory of several GPUs (multimem) is not"
_RUNTIME = "must be one that is simulated, not {opcode}: access properties of the runtime are not"
_SYNC = "must have .sync, not be {opcode}: sm_70 and later have no other form"

#: What an instruction must be, by its base mnemonic or by more of its opcode.
_REASONS = {
    **dict.fromkeys(("tcgen05", "clusterlaunchcontrol", "st.bulk"), _LATER),
    **dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"), _TEXTURE),
    **{
        f"v{name}{count}": _VIDEO
        for name in ("add", "sub", "avrg", "absdiff", "min", "max", "set")
        for count in ("", "2", "4")
        if name + count != "absdiff4"
    },
    **dict.fromkeys(("vshl", "vshr", "vmad", "vabsdiff4.s32", "vabsdiff4.u32.u32.s32", "vabsdiff4.u32.s32.u32"), _VIDEO),
    "multimem": _SEVERAL,
    "createpolicy.cvt": _RUNTIME,
    **dict.fromkeys(("shfl", "vote"), _SYNC),
}


def reason_of(opcode: str) -> str:
    """Return why an instruction that no table has is refused, as a sentence that names it."""
    parts = opcode.split(".")
    for n in (4, 2, 1):
        if reason := _REASONS.get(".".join(parts[:n])):
            return "instruction " + reason.format(opcode=opcode)
    return f"instruction {opcode} is not supported"


def is_refused(opcode: str) -> bool:
    """Is an instruction refused by name, whatever its modifiers?"""
    parts = opcode.split(".")
    return any(".".join(parts[:n]) in _REASONS for n in (4, 2, 1)) and "sync" not in parts
