"""Vectors between registers and shared memory."""

from __future__ import annotations

from .builder import current, usage
from .control import lane, warp_rank_in_group
from .register_tiles import RegisterVector
from .scalars import Int
from .tiles import SharedAddress, SharedVector, fl


def _addresses(operation: str, vector: RegisterVector, shared: SharedVector, group_warps: int) -> list[SharedAddress]:
    """Return the address of every register's element. Raises UsageError for shapes and types that do not fit."""
    if not isinstance(shared, SharedVector) or not isinstance(vector, RegisterVector):
        raise usage(f"{operation} must be given a shared and a register vector, not {type(shared).__name__}")
    if shared.count > 1:
        raise usage(f"{operation} must be given one vector, not the array {shared.name}")
    if shared.dtype is not fl:
        raise usage(f"{operation} vector must be f32, not {shared.dtype}")
    if group_warps > 1 and vector.axis != "row":
        raise usage(f"{operation} vector must be a col_vec, whose rows the warps share out, not {vector}")
    if shared.length != group_warps * vector.length:
        raise usage(f"{operation} shared vector must have {group_warps * vector.length} elements, not {shared.length}")
    l = Int(lane(), nonnegative=True)  # noqa: E741
    by_row = vector.axis == "row"
    offset = (l >> 2) * 4 if by_row else (l & 3) * 8
    if group_warps > 1:
        offset = offset + Int(warp_rank_in_group(), nonnegative=True) * (4 * vector.length)
    start = (offset + Int(shared.address.in_register())).register
    step = 32 if by_row else None
    count = len(vector.registers)
    offsets = [step * n if step else 32 * (n // 2) + 4 * (n % 2) for n in range(count)]
    return [SharedAddress(start, o) for o in offsets]


def load(operation: str, vector: RegisterVector, shared: SharedVector, group_warps: int) -> None:
    """Read a shared vector; every lane gets its copies."""
    for register, address in zip(vector.registers, _addresses(operation, vector, shared, group_warps), strict=True):
        current().emit(f"ld.shared.f32 {register}, {address}")


def store(operation: str, shared: SharedVector, vector: RegisterVector, group_warps: int) -> None:
    """Write a vector to shared memory from the first lanes that hold it, then fence for asynchronous readers."""
    builder = current()
    addresses = _addresses(operation, vector, shared, group_warps)
    l = Int(lane(), nonnegative=True)  # noqa: E741
    first = (l & 3) == 0 if vector.axis == "row" else l < 4
    for register, address in zip(vector.registers, addresses, strict=True):
        builder.emit(f"@{first.register} st.shared.f32 {address}, {register}")
    builder.emit("fence.proxy.async.shared::cta")
