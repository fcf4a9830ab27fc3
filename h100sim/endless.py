"""Loops that can never end: when a warp comes back to a state that it was in before, and nothing else can happen.

A hash of a warp's registers and places is compared after every 64 backward branches (:mod:`h100sim.lanes`); what nobody changes
meanwhile (memory, barriers, copies: ``progress``) need not be. Where nothing can happen but that suspended waits give up, the states of
all warps that wait are compared each time.
"""

from __future__ import annotations

import numpy as np

from . import state as S
from .lanes import let_go
from .native import entry, i64, inner
from .services import ITEM_WARP

#: Looks at a warp in a loop during which nothing but registers changed in the launch, after which lanes that wait for those in the
#: loop go on without them, although no state of the loop came back (it reads a clock, or counts).
VAIN_LOOKS = 4096
_HASHED_STACK_BYTES = 1024
#: Retries of instructions without any change in the launch after which a warp is taken to wait for ever.
VAIN_RETRIES = 4096

_MANY = 1 << 40


@inner
def state_hash(ctx, w):
    """Return a hash of all that decides what a warp does next, but for memory that others share: its registers, its groups of
    lanes and the first kilobyte of the lanes' stacks."""
    c = S.context(ctx)
    W = S.warps(ctx)[w]
    h = np.int64(W.node)
    for lane in range(32):
        for word in i64(c.local + (w * 32 + lane) * c.local_bytes, min(c.local_bytes, _HASHED_STACK_BYTES) // 8):
            h = (h ^ word) * 0x100000001B3
            h ^= (h >> 29) & 0x7FFFFFFFF
    for word in i64(W.regs, c.register_bytes // 8):
        h = (h ^ word) * 0x100000001B3
        h ^= (h >> 29) & 0x7FFFFFFFF
    for n in range(S.NODES_PER_WARP):
        node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
        if node.state != S.FREE:
            place = np.int64(node.pc) << 32 | np.int64(node.mask)
            h = (h ^ place ^ (n << 26) ^ (node.state << 24)) * 0x100000001B3
            h = (h ^ node.reconverge ^ (np.int64(node.parent) << 40)) * 0x100000001B3
            h ^= (h >> 29) & 0x7FFFFFFFF
    return h


@inner
def is_endless(ctx, w):
    """Look whether a warp that keeps branching backwards is in a state that it was in before, and whether that ends the launch.

    While nothing changes but registers and stacks (no byte of shared or global memory, no barrier, no copy: ``progress``), a warp
    that comes back to a state repeats itself for ever. When every warp that runs does so and no unit has work, nothing can happen
    any more. The state of comparison moves on at each power of two (Brent), so that a loop of any period is found.
    """
    c = S.context(ctx)
    warps = S.warps(ctx)
    W = warps[w]
    h = state_hash(ctx, w)
    if W.loop_progress != c.progress:
        W.loop_progress, W.loop_hash, W.loop_looks, W.loops = c.progress, h, 1, 0
        return False
    if h != W.loop_hash:
        W.loop_looks += 1
        if W.loop_looks & (W.loop_looks - 1) == 0:
            W.loop_hash = h
        return False
    W.loops = 1
    for other in range(c.n_slots * c.warps_per_cta):
        X = warps[other]
        if X.state == S.W_RUNNING and (X.loops == 0 or X.loop_progress != c.progress):
            return False
    items = i64(c.heap_item, _MANY)
    for k in range(c.heap_size):  # noqa: SIM110 (compiled)
        if items[k] >> 32 != ITEM_WARP:
            return False
    return True


@inner
def let_all_go(ctx):
    """Where only endless loops are left: let lanes that wait at meeting points go on without those in loops; return whether there
    were any."""
    c = S.context(ctx)
    found = False
    for w in range(c.n_slots * c.warps_per_cta):
        if S.warps(ctx)[w].state == S.W_RUNNING and let_go(ctx, w):
            found = True
    if found:
        c.progress += 1
    return found


@entry("int64")
def state_of_suspended(ctx):
    """Return a hash of the states of all warps of which nothing runs."""
    c = S.context(ctx)
    h = np.int64(0)
    for w in range(c.n_slots * c.warps_per_cta):
        if S.warps(ctx)[w].state == S.W_BLOCKED:
            h = (h ^ state_hash(ctx, w) ^ w) * 0x100000001B3
            h ^= (h >> 29) & 0x7FFFFFFFF
    return h


@inner
def is_vain(ctx):
    """Count retries since anything last changed; many of them mean that nothing will, and that the warp had better wait."""
    c = S.context(ctx)
    if c.progress != c.retry_progress:
        c.retry_progress, c.retries = c.progress, 0
    c.retries += 1
    # Every warp of the launch may find the tensor core's queue full for a while, again and again.
    return c.retries > (VAIN_RETRIES << 6 if c.schedule else VAIN_RETRIES) + 256 * c.n_slots * c.warps_per_cta
