"""Generic addresses: where the windows of the state spaces lie, and how an address finds its bytes.

A shared address has the rank of its CTA in the cluster in bits 24 and up and the byte offset in the CTA's window below; the
first 0x400 bytes of a window are reserved, so a kernel's shared variables start at 0x400 (Measured on sm_90a: see
``mapa``/``getctarank`` in the machine code that ptxas emits). The bases of the windows are ours: no program may rely on them.
"""

from __future__ import annotations

from .. import faults
from .. import state as S
from ..native import i64, inner
from ..services import fail

#: Codes of state spaces, as in ``trace.Space``, and the generic space.
GLOBAL, SHARED, LOCAL, CONST, PARAM, GENERIC = 0, 1, 2, 3, 4, 7

SHARED_START = 0x400
SHARED_WINDOW = 0x7A0000000000
LOCAL_WINDOW = 0x7B0000000000
CONST_WINDOW = 0x7C0000000000
PARAM_WINDOW = 0x7D0000000000
#: Addresses of functions: FUNCTION_BYTES for each function of a module, in the order of the text.
FUNCTION_WINDOW = 0x7E0000000000
FUNCTION_BYTES = 16
WINDOW_BYTES = 1 << 40

WINDOWS = {"global": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW, "param": PARAM_WINDOW}
CODES = {"global": GLOBAL, "shared": SHARED, "local": LOCAL, "const": CONST, "param": PARAM, "": GENERIC}


@inner
def space_of_generic(address):
    """Return the state space that a generic address belongs to."""
    window = address & ~(WINDOW_BYTES - 1)
    if window == SHARED_WINDOW:
        return SHARED
    if window == LOCAL_WINDOW:
        return LOCAL
    if window == CONST_WINDOW:
        return CONST
    if window == PARAM_WINDOW:
        return PARAM
    return GLOBAL


@inner
def global_pointer(ctx, address, size):
    """Return the host address of global bytes, or 0 if they do not lie in one live allocation."""
    c = S.context(ctx)
    starts, ends = i64(c.allocation_starts, c.n_allocations), i64(c.allocation_ends, c.n_allocations)
    k = c.last_allocation
    if k >= c.n_allocations or address < starts[k] or address + size > ends[k]:
        low, high = 0, c.n_allocations
        while low < high:
            middle = (low + high) >> 1
            if starts[middle] <= address:
                low = middle + 1
            else:
                high = middle
        k = low - 1
        if k < 0 or address + size > ends[k]:
            return 0
        c.last_allocation = k
    return c.arena + (address - c.arena_base)


@inner
def shared_cta(ctx, cta, address):
    """Return the CTA slot that a shared address names, or -1 if its rank is not in the cluster."""
    C = S.ctas(ctx)[cta]
    rank = address >> 24
    if rank >= C.cluster_size:
        return -1
    return C.cluster_slot + rank


@inner
def shared_pointer(ctx, cta, address, size):
    """Return the host address of shared bytes seen from a CTA, or 0 if they lie outside."""
    c = S.context(ctx)
    offset = address & 0xFFFFFF
    if address < 0 or offset + size > c.shared_size:
        return 0
    peer = shared_cta(ctx, cta, address)
    if peer < 0:
        return 0
    return S.ctas(ctx)[peer].shared + offset


@inner
def pointer(ctx, w, lane, space, address, size):
    """Return the host address of ``size`` bytes for a lane, or 0 after recording the error."""
    c = S.context(ctx)
    if address & (size - 1):
        fail(ctx, faults.MISALIGNED, address, size, space)
        return 0
    kind = space
    offset = address
    if space == GENERIC:
        kind = space_of_generic(address)
        if kind != GLOBAL:
            offset = address & (WINDOW_BYTES - 1)
    found = 0
    if kind == GLOBAL:
        found = global_pointer(ctx, offset, size)
        if found == 0:
            fail(ctx, faults.OUT_OF_RANGE_GLOBAL, address, size, kind)
        return found
    if kind == SHARED:
        found = shared_pointer(ctx, S.warps(ctx)[w].cta, offset, size)
        if found == 0:
            fail(ctx, faults.OUT_OF_RANGE_SHARED, offset, size, c.shared_size)
        return found
    if kind == LOCAL:
        if offset >= 0 and offset + size <= c.local_bytes:
            return c.local + ((w * 32 + lane) * c.local_bytes) + offset
    elif kind == CONST:
        if offset >= 0 and offset + size <= c.constant_bytes:
            return c.constants + offset
    elif offset >= 0 and offset + size <= c.parameter_bytes:
        return c.parameters + offset
    fail(ctx, faults.OUT_OF_RANGE_OTHER, address, size, kind)
    return 0


@inner
def shared_offset(ctx, cta, address):
    """Return the shared address of a byte of a CTA: the rank of the CTA in bits 24 and up, the offset below."""
    return (S.ctas(ctx)[cta].cluster_rank << 24) | address
