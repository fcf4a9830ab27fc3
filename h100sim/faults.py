"""The ways a running kernel can stop, as numbers that compiled code records and as exceptions that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import H100SimError, IllegalInstruction, KernelError, MisalignedAddress, OutOfRange, Trap, Where

if TYPE_CHECKING:
    from .machine import Machine

(
    NONE,
    DIVERGENCE,
    RECONVERGE_LIMIT,
    MISALIGNED,
    OUT_OF_RANGE_GLOBAL,
    OUT_OF_RANGE_SHARED,
    OUT_OF_RANGE_OTHER,
    TRAP,
    MBARRIER_MISALIGNED,
    MBARRIER_UNINITIALISED,
    MBARRIER_COUNT,
    MBARRIER_TOO_MANY,
    MBARRIER_PARITY,
    BARRIER_COUNT,
    BARRIER_ID,
    WGMMA_WARPGROUP,
    WGMMA_MISMATCH,
    DESCRIPTOR_OUT_OF_RANGE,
    TENSOR_MAP_INVALID,
    TENSOR_MAP_RANK,
    TMA_REFUSED,
    BULK_SIZE,
    BULK_ALIGN,
    SETMAXNREG,
    ELECT_MASK,
    CLUSTER_RANK,
    READ_ONLY,
    MBARRIER_OVERFLOW,
    DIVERGENT_COLLECTIVE,
    SHUFFLE_MASK,
    CP_SIZE,
    TMA_ALIGN,
    STACK_OVERFLOW,
    BRANCH_INDEX,
    CALL_TARGET,
    PARAM_SPACE,
    CLUSTER_TWICE,
    SPARSE_METADATA,
    MBARRIER_ELSEWHERE,
) = range(39)

_SPACES = ("global", "shared", "local", "const", "param", "", "", "generic")


def error_of(machine: Machine) -> H100SimError:
    """Return the exception for the error that compiled code recorded in the context."""
    c = machine.context
    code, a, b, extra = (int(c[k]) for k in ("error", "error_a", "error_b", "error_c"))
    where = machine.where(int(c["error_warp"]), int(c["error_pc"]))
    opcode = machine.opcode(int(c["error_pc"]))
    kind, message, rule = _describe(machine, code, a, b, extra, opcode)
    return kind(message, where, rule)


def _describe(machine: Machine, code: int, a: int, b: int, extra: int, opcode: str) -> tuple[type[KernelError], str, str]:
    isa = "PTX ISA 9.1, "
    if code == MISALIGNED:
        return (
            MisalignedAddress,
            f"{opcode} address must be a multiple of {b}, not {a:#x}",
            isa + '"Addresses as Operands", natural alignment',
        )
    if code == OUT_OF_RANGE_GLOBAL:
        return OutOfRange, f"{opcode} address must lie in an allocation, not {machine.memory.describe(a, b)}", isa + '"State Spaces"'
    if code == OUT_OF_RANGE_SHARED:
        return (
            OutOfRange,
            f"{opcode} shared address must lie in the {extra:,} bytes of the CTA, not {a:#x} ({b} bytes)",
            isa + '"Shared State Space"',
        )
    if code == OUT_OF_RANGE_OTHER:
        return (
            OutOfRange,
            f"{opcode} address must lie in the {_SPACES[extra]} space, not {a:#x} ({b} bytes)",
            isa + '"State Spaces"',
        )
    if code == TRAP:
        return Trap, "kernel executed trap", isa + '"Miscellaneous Instructions: trap"'
    if code == READ_ONLY:
        return OutOfRange, f"{opcode} destination must be writable memory, not the {_SPACES[extra]} space at {a:#x}", isa + '"State Spaces"'
    mbarrier = isa + '"Parallel Synchronization and Communication Instructions: mbarrier"'
    if code == MBARRIER_MISALIGNED:
        return MisalignedAddress, f"mbarrier address must be a multiple of 8, not {a:#x}", mbarrier
    if code == MBARRIER_UNINITIALISED:
        return (
            IllegalInstruction,
            f"{opcode} must name an initialised mbarrier, not shared address {a:#x}, which has never been one in this CTA",
            mbarrier,
        )
    if code == MBARRIER_COUNT:
        return IllegalInstruction, f"mbarrier count must be from 1 to 1,048,575, not {a:,}", mbarrier
    if code == MBARRIER_TOO_MANY:
        return KernelError, f"mbarriers of one CTA must be at most {a:,} in this simulator, not more", ""
    if code == MBARRIER_PARITY:
        return IllegalInstruction, f"mbarrier phase parity must be 0 or 1, not {a}", mbarrier
    if code == MBARRIER_OVERFLOW:
        return (
            IllegalInstruction,
            f"mbarrier {'pending count' if extra == 0 else 'tx-count'} must stay from {-(1 << 20) + 1:,} to {(1 << 20) - 1:,}, "
            f"not {b:,} ({machine.barrier_name(a)})",
            mbarrier,
        )
    if code == BARRIER_COUNT:
        return IllegalInstruction, f"{opcode} thread count must be a multiple of 32 up to the {b} of the CTA, not {a}", isa + '"barrier"'
    if code == BARRIER_ID:
        return IllegalInstruction, f"{opcode} barrier must be from 0 to 15, not {a}", isa + '"barrier"'
    if code == WGMMA_WARPGROUP:
        return (
            IllegalInstruction,
            f"{opcode} must be executed by a whole warpgroup of four warps, but warp {a} of the CTA has only {b} beside it",
            isa + '"Asynchronous Warpgroup Level Matrix Instructions"',
        )
    if code == WGMMA_MISMATCH:
        return (
            IllegalInstruction,
            f"{opcode} must be the same instruction in all four warps of the warpgroup, not {machine.opcode(a)} at {machine.place(a)} in another",
            isa + '"Asynchronous Warpgroup Level Matrix Instructions"',
        )
    if code == DESCRIPTOR_OUT_OF_RANGE:
        return (
            OutOfRange,
            f"{opcode} operand {'A' if b == 0 else 'B'} must lie in the {extra:,} bytes of the CTA's shared memory, not at {a:#x}",
            isa + '"Matrix Descriptor Format"',
        )
    if code == TENSOR_MAP_INVALID:
        return IllegalInstruction, f"{opcode} tensor map must be 128 bytes that the driver encoded, not those at {a:#x}", isa + '"Tensor-map"'
    if code == TENSOR_MAP_RANK:
        return IllegalInstruction, f"{opcode} rank must be that of the tensor map ({a}), not {b}", isa + '"Tensor-map"'
    if code == TMA_REFUSED:
        from .tma import fault_class, fault_text

        return fault_class(a), f"{opcode} {fault_text(a)}", isa + '"Data Movement and Conversion Instructions: Tensor copy"'
    if code == TMA_ALIGN:
        return MisalignedAddress, f"{opcode} shared address must be a multiple of {b}, not {a:#x}", isa + '"cp.async.bulk.tensor"'
    if code == MBARRIER_ELSEWHERE:
        rule = isa + '"Data Movement and Conversion Instructions: Asynchronous copy"'
        return IllegalInstruction, f"{opcode} mbarrier must lie in the CTA that is written, of rank {b}, not in that of rank {a}", rule
    if code == BULK_SIZE:
        return IllegalInstruction, f"{opcode} size must be a multiple of 16, not {a}", isa + '"cp.async.bulk"'
    if code == BULK_ALIGN:
        return MisalignedAddress, f"{opcode} address must be a multiple of 16, not {a:#x}", isa + '"cp.async.bulk"'
    if code == CP_SIZE:
        return IllegalInstruction, f"{opcode} source size must be at most {b}, not {a}", isa + '"cp.async"'
    if code == SETMAXNREG:
        return (
            IllegalInstruction,
            f"{opcode} count must be {'at least' if extra else 'at most'} the {b} registers that the warp has, not {a}",
            isa + '"Miscellaneous Instructions: setmaxnreg"',
        )
    if code == ELECT_MASK:
        return IllegalInstruction, f"{opcode} mask must contain the executing lanes, not {a & 0xFFFFFFFF:#010x}", isa + '"elect.sync"'
    if code == CLUSTER_RANK:
        return OutOfRange, f"{opcode} must name a CTA of the cluster (0 to {b - 1}), not {a}", isa + '"Shared State Space"'
    if code == DIVERGENT_COLLECTIVE:
        return (
            IllegalInstruction,
            f"{opcode} must be executed by all lanes of the warp together, not by {a & 0xFFFFFFFF:#010x} of {b & 0xFFFFFFFF:#010x}",
            isa + '".aligned"',
        )
    if code == SHUFFLE_MASK:
        return IllegalInstruction, f"{opcode} member mask must contain the executing lanes, not {a & 0xFFFFFFFF:#010x}", isa + '".sync"'
    if code == RECONVERGE_LIMIT:
        return KernelError, "lanes of one warp must part into at most 64 groups in this simulator", ""
    if code == STACK_OVERFLOW:
        message = f"stack of a lane must be at most {a:,} bytes, not {b:,} (does a function call itself for ever?)"
        return OutOfRange, message, isa + '"Local State Space"'
    if code == CLUSTER_TWICE:
        return IllegalInstruction, f"{opcode} must be followed by a wait before the next arrive, not arrive twice in generation {a}", isa + '"barrier.cluster"'
    if code == BRANCH_INDEX:
        return IllegalInstruction, f"{opcode} index must be from 0 to {b - 1}, not {a}", isa + '"brx.idx"'
    if code == CALL_TARGET:
        name = machine.name_of_function(a)
        message = f"{opcode} target must be the address of a function with the signature of the call, not {name}"
        return IllegalInstruction, message, isa + '"call"'
    if code == SPARSE_METADATA:
        rule = "0b0100 or 0b1110" if extra == 32 else "two different indices"
        row, chunk = divmod(a, 64)
        message = f"{opcode} metadata of row {row}, chunk {chunk} must be {rule}, not {b:#06b}"
        return IllegalInstruction, message, isa + '"Sparse matrix storage"'
    return KernelError, f"{opcode} failed with fault {code} ({a}, {b}, {extra})", ""


__all__ = ["Where", "error_of"]
