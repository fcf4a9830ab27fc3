"""The port of shared memory: who gets its 128 bytes a cycle when loads, stores and the tensor core want it at once.

The tensor core reads the operands of a wgmma through the same port and comes first: loads and stores get the cycles that it leaves,
and a few of its own. Copies of the TMA engine do not wait for the port.

Measured: validate/silicon/shared_port.json. With n 128 and less, loads and stores get what is left, and 2.2 cycles of each wgmma, which
takes as much longer; with n 256 stores do, and loads two thirds of it, which is not modelled. Copies keep 93 to 96 % of their rate
beside wgmma of n 96 to 256 and 70 % beside smaller ones, which is not modelled either; wgmma does not notice them.
"""

from __future__ import annotations

from .. import state as S
from ..native import inner


@inner
def multiplied(sm, cycles, operand_cycles):
    """Note the wgmma that was given to the tensor core last: its cycles, and those of the port that its operands take."""
    sm.port_of, sm.port_left = cycles, cycles - operand_cycles


@inner
def reserve(ctx, sm, wavefronts):
    """Reserve the port for the wavefronts of an access; return when the first and the last of them have their turn."""
    c, T = S.context(ctx), S.timing(ctx)
    start = max(float(c.now), sm.port_free)
    taken = float(wavefronts)
    busy = sm.tensor_free - start
    if busy > 0.0:
        # Behind a queue that is filled more products wait to be issued.
        if 2 * sm.wgmma_open >= T.wgmma_queue_depth:
            busy += T.wgmma_queue_depth * sm.port_of
        mine = T.wgmma_port_cycles_per_wgmma
        left = sm.port_left + mine
        beside = min(taken, busy * left / sm.port_of)
        taken += beside * (sm.port_of / left - 1.0)
        sm.port_owed += beside * mine / left
        if sm.port_owed >= 1.0:
            sm.tensor_free += int(sm.port_owed)
            sm.port_owed -= int(sm.port_owed)
    sm.port_free = start + taken
    return start, sm.port_free
