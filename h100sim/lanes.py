"""Lanes of a warp that part and meet: the tree of groups that :data:`h100sim.state.NODE` describes.

Branches, calls and jump tables part groups; arriving where the sides meet merges them again. A function that is called runs
one level deeper than its caller: while a group is ``k`` calls deeper than the place where it will meet others, its
``reconverge`` is that place plus ``k * DEPTH``, so that a recursive call that passes the place does not take it for its own.

Lanes wait at a meeting point as long as anything in the launch changes. When only loops are left that come back to a state in
which they were before, those who wait for lanes in such loops go on without them: a lane that spins on a lock cannot starve the
lane that holds it.
"""

from __future__ import annotations

from . import state as S
from .faults import RECONVERGE_LIMIT
from .native import inner
from .services import fail

#: Backward branches of one group of lanes after which other groups of the warp get their turn.
PATIENCE = 64
#: What one level of calls adds to a meeting point: more than any program has instructions.
DEPTH = 1 << 20


@inner
def new_node(ctx, w, parent, pc, reconverge, mask):
    """Add a group of lanes to a warp and return its number."""
    nodes = S.nodes(ctx)
    base = w * S.NODES_PER_WARP
    for n in range(S.NODES_PER_WARP):
        node = nodes[base + n]
        if node.state == S.FREE:
            node.state, node.parent, node.children = S.READY, parent, 0
            node.pc, node.reconverge, node.mask = pc, reconverge, mask
            node.wait, node.woken, node.expired = 0, 0, 0
            return n
    return -1


@inner
def choose(ctx, w):
    """Make the next group that can run the warp's current one, in turn; return False if there is none."""
    nodes = S.nodes(ctx)
    W = S.warps(ctx)[w]
    base = w * S.NODES_PER_WARP
    for k in range(1, S.NODES_PER_WARP + 1):
        n = (W.node + k) % S.NODES_PER_WARP
        if nodes[base + n].state == S.READY:
            W.node, W.steps = n, 0
            return True
    return False


@inner
def leave(ctx, w, n, arriving):
    """Take group ``n`` out of the tree. ``arriving`` lanes wait in the parent, which runs on when it was the last child."""
    nodes = S.nodes(ctx)
    base = w * S.NODES_PER_WARP
    node = nodes[base + n]
    node.state = S.FREE
    parent = node.parent
    while parent >= 0:
        join = nodes[base + parent]
        join.mask |= arriving
        join.children -= 1
        if join.children > 0:
            return
        if join.mask != 0:
            join.state = S.READY
            S.warps(ctx)[w].node = parent
            return
        join.state = S.FREE
        parent, arriving = join.parent, 0


@inner
def part(ctx, w, n, taken, target, following, reconverge):
    """Split group ``n``: the lanes ``taken`` go to ``target``, the others to ``following``; both meet at ``reconverge``.
    Return the number of the group of ``taken``, or -1 after recording an error."""
    nodes = S.nodes(ctx)
    W = S.warps(ctx)[w]
    base = w * S.NODES_PER_WARP
    node = nodes[base + n]
    rest = node.mask & ~taken
    if reconverge == node.reconverge and node.parent >= 0:
        # Both sides meet where this group was going to meet its siblings: the other side becomes a sibling.
        other = new_node(ctx, w, node.parent, following, reconverge, rest)
        nodes[base + node.parent].children += 1
        node.pc, node.mask = target, taken
        first, second = n, other
    else:
        first = new_node(ctx, w, n, target, reconverge, taken)
        second = new_node(ctx, w, n, following, reconverge, rest)
        node.state, node.children, node.mask, node.pc = S.JOIN, 2, 0, reconverge
    if second < 0 or first < 0:
        fail(ctx, RECONVERGE_LIMIT, 0, 0, 0)
        return -1
    W.node = first if target < following else second
    W.steps = 0
    return first


@inner
def jump(ctx, w, n, target):
    """Let a whole group go on at ``target``; after many jumps backwards another group has its turn. Return whether that is now."""
    W = S.warps(ctx)[w]
    node = S.nodes(ctx)[w * S.NODES_PER_WARP + n]
    backward = target <= node.pc
    node.pc = target
    if backward:
        W.steps += 1
        if W.steps > PATIENCE:
            choose(ctx, w)
            return True
    return False


@inner
def let_go(ctx, w):
    """Let the lanes of a warp that wait at meeting points go on without the others; return whether there were any."""
    nodes = S.nodes(ctx)
    base = w * S.NODES_PER_WARP
    found = False
    for n in range(S.NODES_PER_WARP):
        join = nodes[base + n]
        if join.state == S.JOIN and join.mask != 0 and join.pc >= 0:
            alone = new_node(ctx, w, join.parent, join.pc, join.reconverge, join.mask)
            if alone >= 0:
                join.mask = 0
                if join.parent >= 0:
                    nodes[base + join.parent].children += 1
                S.warps(ctx)[w].node = alone
                found = True
    return found
