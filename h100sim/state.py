"""The state of a launch as flat tables, so that compiled code runs over it and a checkpoint is a copy of arrays.

Python sees the tables as NumPy structured arrays; compiled code reaches them through the context record, whose address every
instruction receives. All tables are allocated once per launch by :func:`h100sim.machine.Machine`; none refers to Python.
"""

from __future__ import annotations

import numpy as np

from .native import record, table
from .trace import CTA_INFO, EVENT, WARP_INFO

NODES_PER_WARP = 64
BARRIERS_PER_CTA = 16
WGMMA_RING = 64
#: Cycles that the ring of the queue covers, a power of two; words of a bit for each. A time that never comes.
RING_CYCLES = 1024
RING_WORDS = RING_CYCLES // 64
NEVER = 1 << 62
PIPES = ("alu", "fma", "imad", "half", "cvt", "mufu", "f64", "uniform", "tensor", "memory")
N_PIPES = len(PIPES)
#: Fractions of a cycle in which the work of pipes is counted.
PIPE_UNITS = 16

#: One decoded instruction. ``ops`` is the address of its operand offsets, ``inputs``/``outputs`` count scoreboard slots at
#: ``slots``; ``pressed``, ``queued``, ``hold``, ``beside``, ``hidden``, ``idle``, ``at``, ``slots_taken`` and ``line`` (of 128 bytes of
#: code) are of :mod:`h100sim.schedule`;
#: ``reconverge`` is the instruction where the sides of a branch meet again.
INSTRUCTION = np.dtype(
    [
        ("function", "i8"),
        ("completion", "i8"),
        ("ops", "i8"),
        ("kind", "i4"),
        ("guard", "i4"),
        ("guard_negated", "i4"),
        ("pipe", "i4"),
        ("latency", "i4"),
        ("issue", "i4"),
        ("pressed", "i4"),
        ("queued", "i4"),
        ("hold", "i4"),
        ("beside", "i4"),
        ("hidden", "i4"),
        ("idle", "i4"),
        ("at", "i8"),
        ("slots_taken", "i4"),
        ("line", "i4"),
        ("slots", "i4"),
        ("inputs", "i4"),
        ("outputs", "i4"),
        ("target", "i4"),
        ("reconverge", "i4"),
        ("ends_lanes", "i4"),
        ("imm0", "i8"),
        ("imm1", "i8"),
        ("imm2", "i8"),
        ("imm3", "i8"),
        ("imm4", "i8"),
        ("imm5", "i8"),
    ],
    align=True,
)

LANE, BRANCH, MACHINE = 0, 1, 2

#: A group of lanes of a warp that run together, or a place where groups meet again (a join). Nodes form a tree: a branch that
#: diverges turns its node into a join and adds a child per side; a child that reaches ``reconverge`` is merged into its
#: parent, which runs on when no child is left.
NODE = np.dtype(
    [
        ("state", "i4"),
        ("parent", "i4"),
        ("children", "i4"),
        ("pc", "i4"),
        ("mask", "u4"),
        ("reconverge", "i8"),
        ("wait", "i4"),
        ("wait_parity", "i4"),
        ("wait_object", "i8"),
        ("wait_value", "i8"),
        ("since", "i8"),
        ("expired", "i4"),
        ("woken", "i4"),
    ],
    align=True,
)
FREE, READY, BLOCKED, JOIN = 0, 1, 2, 3

WARP = np.dtype(
    [
        ("id", "i4"),
        ("cta", "i4"),
        ("rank", "i4"),
        ("sm", "i4"),
        ("scheduler", "i4"),
        ("state", "i4"),
        ("node", "i4"),
        ("alive", "u4"),
        ("queued", "i4"),
        ("group", "i4"),
        ("registers", "i4"),
        ("steps", "i4"),
        ("line", "i4"),
        ("regs", "i8"),
        ("ready", "i8"),
        # From ``horizon`` on, all that the warp's instructions have written so far can be read.
        # Cycles that were waited for operands in this block beyond those planned, and where in its schedule last.
        ("waited", "i8"),
        ("waited_at", "i8"),
        ("horizon", "i8"),
        ("time", "i8"),
        ("issued", "i8"),
        # When the pipe of the instruction to be issued is free, which was busy; -1: not asked.
        ("granted", "i8"),
        # Cycles that the instruction to be issued has waited for its code, and for room in the tensor core's queue.
        ("fetching", "i8"),
        ("held", "i8"),
        # For finding endless loops: a hash of the warp's state, taken while the launch's progress was ``loop_progress``, how often
        # it was looked at since, and whether the hash has come again.
        ("loop_hash", "i8"),
        ("loop_progress", "i8"),
        ("loop_looks", "i4"),
        ("loops", "i4"),
        # Lanes that have arrived at the cluster barrier, those that have yet to wait for it, the generation that the warp last
        # arrived at; cp.async groups by lane.
        ("cluster_lanes", "u4"),
        ("cluster_owed", "u4"),
        ("cluster_generation", "i8"),
        ("cp_groups", "i4", (32,)),
        # Has the device function that the warp waits for been done?
        ("served", "i4"),
    ],
    align=True,
)
W_UNUSED, W_RUNNING, W_BLOCKED, W_EXITED = 0, 1, 2, 3

CTA = np.dtype(
    [
        ("id", "i4"),
        ("state", "i4"),
        ("sm", "i4"),
        ("warps", "i4"),
        ("alive", "i4"),
        ("cluster", "i4"),
        ("cluster_rank", "i4"),
        ("cluster_size", "i4"),
        ("cluster_slot", "i4"),
        ("register_pool", "i4"),
        ("mbarriers", "i4"),
        ("pending", "i4"),
        ("start", "i8"),
        ("end", "i8"),
        ("shared", "i8"),
        ("cluster_generation", "i8"),
        ("cluster_arrived", "i4"),
        ("cluster_ready", "i8"),
        ("cluster_opens", "i8"),
    ],
    align=True,
)

MBARRIER = np.dtype(
    [
        ("identity", "i4"),
        ("live", "i4"),
        ("cta", "i4"),
        ("offset", "i4"),
        ("pending", "i4"),
        ("expected", "i4"),
        ("phase", "i8"),
        ("tx", "i8"),
        ("init_pc", "i4"),
        ("waiters", "i4"),
    ],
    align=True,
)

BARRIER = np.dtype([("expected", "i4"), ("arrived", "i4"), ("generation", "i8"), ("active", "i4"), ("waiters", "i4")], align=True)

#: An asynchronous operation in flight. ``identity`` is never reused; the slot is.
ASYNC = np.dtype(
    [
        ("completion", "i8"),
        ("identity", "i4"),
        ("state", "i4"),
        ("kind", "i4"),
        ("cta", "i4"),
        ("warp", "i4"),
        ("lane", "i4"),
        ("pc", "i4"),
        ("group", "i4"),
        ("mbarrier", "i4"),
        ("plan", "i4"),
        ("peer", "i4"),
        ("multicast", "i4"),
        ("bytes", "i8"),
        ("shared", "i8"),
        ("address", "i8"),
        ("coords", "i8", (5,)),
        ("offsets", "i8", (3,)),
        ("descriptor_a", "i8"),
        ("descriptor_b", "i8"),
        ("sequence", "i8"),
        ("arrived", "i4"),
        ("scale_d", "i4"),
        ("issued", "i8"),
        ("read", "i8"),
        ("done", "i8"),
        # A copy of the TMA engine: the count of ``stored`` at which it has left, and the slip of the engine that it knows of (-1: none
        # matters to it).
        ("leaves", "f8"),
        ("slip", "i8"),
    ],
    align=True,
)
A_FREE, A_WAITING, A_FLYING, A_READ = 0, 1, 2, 3
A_WGMMA = 100

#: The wgmma state of four warps. Sequence numbers count the wgmmas of the warpgroup; ``ends`` holds, per committed group, the
#: sequence number after its last wgmma.
WARPGROUP = np.dtype(
    [
        ("created", "i8"),
        ("completed", "i8"),
        ("issued", "i8", (4,)),
        ("committed", "i8", (4,)),
        ("ring", "i4", (WGMMA_RING,)),
        ("ends", "i8", (WGMMA_RING,)),
        ("last_done", "i8"),
    ],
    align=True,
)

SM = np.dtype(
    [
        ("tensor_free", "i8"),
        # Where it stands: its GPC, the half of L2 on its side, the distance class of its GPC, and its TPC as a bit.
        ("gpc", "i4"),
        ("side", "i4"),
        ("near", "i4"),
        ("tpc_bit", "u8"),
        ("tma_free", "i8"),
        # How many copies leave the SM, up to which count of ``stored``, and by how much the engine is behind what was booked.
        ("tma_stores", "i8"),
        ("tma_stored", "f8"),
        ("tma_slip", "i8"),
        ("tma_maps", "u8"),
        ("store_free", "i8"),
        # Bytes stored since the last mark, when L2 has taken what was stored up to the last mark, and up to the one before.
        ("store_marked", "i8"),
        ("store_taken", "i8"),
        ("store_taken_before", "i8"),
        ("load_free", "f8"),
        # The first of its places in the table of L1, and the sectors that were brought in.
        ("l1", "i4"),
        ("l1_filled", "i4"),
        # Warps that have given up trying to issue a wgmma until there is room.
        ("wgmma_held", "i8"),
        ("fetch_free", "i8"),
        ("fetch_next", "i8"),
        ("port_free", "f8"),
        ("port_owed", "f8"),
        ("port_of", "i8"),
        ("port_left", "i8"),
        ("network_free", "f8"),
        ("mbarrier_free", "i8"),
        ("tensor_busy", "i8"),
        ("tma_bytes", "i8"),
        ("wgmma_open", "i4"),
        ("ctas", "i4"),
    ],
    align=True,
)

#: Until when whoever asks for a line of L2 is answered together with others, the TPCs of those, and the access that brought the line.
ASKED = np.dtype([("until", "i8"), ("tpcs", "u8"), ("flight", "i8")])

#: Accesses whose arrival is remembered for those that want the same lines.
FLIGHTS = 8192

#: Sectors of 32 bytes that the table of an SM's L1 has places for, and an entry: which one of the arena is there (counted from 1; 0:
#: none), and how many had been brought in when it was last used.
L1_PLACES = 8192
L1_SECTOR = np.dtype([("sector", "i4"), ("stamp", "i4")])

#: The numbers of a device that compiled code needs, copied from :mod:`h100sim.devices` by name.
TIMING = np.dtype(
    [
        (name, "f8" if name.endswith(("per_cycle", "per_wgmma")) else "i8")
        for name in (
            "branch_cycles",
            "branch_not_taken_cycles",
            "setmaxnreg_cycles",
            "clock_cycles",
            "globaltimer_cycles",
            "fetch_latency_cycles",
            "fetch_line_cycles",
            "fetch_lines_ahead",
            "shared_load_latency",
            "shared_store_latency",
            "shared_queue_cycles",
            "cluster_packets_per_cycle",
            "cluster_bytes_per_cycle",
            "cluster_load_bytes_per_cycle",
            "cluster_load_latency",
            "cluster_copy_latency",
            "cluster_queue_cycles",
            "mbarrier_arrive_cycles",
            "mbarrier_expect_cycles",
            "mbarrier_wait_latency",
            "mbarrier_wake_cycles",
            "mbarrier_wake_parted_cycles",
            "mbarrier_suspend_cycles",
            "named_release_cycles",
            "named_arrive_cycles",
            "named_arrive_delay_cycles",
            "named_wake_cycles",
            "cluster_release_cycles",
            "cluster_arrive_cycles",
            "cluster_arrive_release_cycles",
            "fence_cycles",
            "wgmma_operand_cycles",
            "wgmma_floor_cycles",
            "wgmma_tail_cycles",
            "wgmma_registers_cycles",
            "wgmma_fence_cycles",
            "wgmma_issue_cycles",
            "wgmma_port_cycles_per_wgmma",
            "wgmma_queue_depth",
            "tma_issue_cycles",
            "tma_elected_cycles",
            "tma_elected_lead_cycles",
            "tma_store_issue_cycles",
            "tma_descriptor_cycles",
            "tma_store_descriptor_cycles",
            "tma_bulk_latency_cycles",
            "tma_bulk_issue_cycles",
            "tma_latency_cycles",
            "tma_bytes_per_cycle",
            "tma_box_cycles",
            "tma_store_latency_cycles",
            "tma_store_done_cycles",
            "tma_store_bytes_per_cycle",
            "tma_reduce_bytes_per_cycle",
            "l2_latency",
            "l2_far_cycles",
            "l2_cross_cycles",
            "l2_merge_cycles",
            "l2_wait_cycles",
            "l2_repeat_percent",
            "l2_write_bytes_per_cycle",
            "l2_bytes_per_cycle",
            "l2_shared_bytes_per_cycle",
            "cross_bytes_per_cycle",
            "hbm_extra_latency",
            "hbm_bytes_per_cycle",
            "hbm_late_percent",
            "hbm_late_cycles",
            "hbm_late_spread",
            "load_wait_cycles",
            "load_bytes_per_cycle",
            "l1_latency",
            "atomic_cycles",
            "atomic_lane_cycles",
            "store_sector_cycles",
            "store_part_cycles",
            "store_queue",
            "store_scheduler_queue",
            "store_queue_bytes",
            "cta_cycles",
            "shared_issue_cycles",
            "shared_wide_issue_cycles",
        )
    ],
    align=True,
)

#: Why compiled code came back to Python.
R_IDLE, R_STEP, R_UNTIL, R_TRACE_FULL, R_ERROR, R_GROW, R_HOST, R_DONE, R_ENDLESS = 0, 1, 2, 3, 4, 5, 6, 7, 8

#: What ``host`` in the context asks Python for: a tensor map to be decoded, a function of the device runtime to be done.
H_TENSOR_MAP, H_DEVICE_FUNCTION = 1, 2

#: What memory of a lane holds before it is written, so that reading it shows.
POISON = 0xCD

#: What an instruction or a unit says when it returns.
S_NEXT, S_BLOCK, S_JUMPED, S_EXITED, S_ERROR, S_GROW, S_HOST, S_RETRY = 0, 1, 2, 3, 4, 5, 6, 7

CONTEXT = np.dtype(
    [
        # tables
        ("instructions", "i8"),
        ("slots", "i8"),
        ("warps", "i8"),
        ("nodes", "i8"),
        ("ctas", "i8"),
        ("mbarriers", "i8"),
        ("mbarrier_index", "i8"),
        ("barriers", "i8"),
        ("asyncs", "i8"),
        ("groups", "i8"),
        ("slot_sms", "i8"),
        ("sms", "i8"),
        ("timing", "i8"),
        ("scheduler_free", "i8"),
        ("pipe_free", "i8"),
        ("lane_groups", "i8"),
        ("heap_time", "i8"),
        ("heap_key", "i8"),
        ("heap_item", "i8"),
        ("ring_last", "i8"),
        ("ring_next", "i8"),
        ("ring_used", "i8"),
        ("shared", "i8"),
        ("registers", "i8"),
        ("ready", "i8"),
        ("register_template", "i8"),
        ("fills", "i8"),
        ("parameters", "i8"),
        ("constants", "i8"),
        ("local", "i8"),
        ("arena", "i8"),
        ("allocation_starts", "i8"),
        ("allocation_ends", "i8"),
        ("plans", "i8"),
        ("plan_addresses", "i8"),
        ("events", "i8"),
        ("lanes", "i8"),
        ("cta_info", "i8"),
        ("warp_info", "i8"),
        ("scratch", "i8"),
        ("step_functions", "i8"),
        ("l2_stamps", "i8"),
        ("l2_filled", "i8"),
        ("l2_asked", "i8"),
        ("flights", "i8"),
        ("read_free", "f8"),
        ("given_free", "f8"),
        ("given", "i8"),
        ("gpc_tpcs", "i8"),
        ("l1_sectors", "i8"),
        ("fetched", "i8"),
        # sizes
        ("n_slots", "i8"),
        ("warps_per_cta", "i8"),
        ("n_sms", "i8"),
        ("shared_stride", "i8"),
        ("shared_size", "i8"),
        ("register_bytes", "i8"),
        ("template_bytes", "i8"),
        ("ready_slots", "i8"),
        ("n_fills", "i8"),
        ("code_lines", "i8"),
        ("mbarriers_per_cta", "i8"),
        ("async_capacity", "i8"),
        ("heap_capacity", "i8"),
        ("event_capacity", "i8"),
        ("lane_capacity", "i8"),
        ("parameter_bytes", "i8"),
        ("constant_bytes", "i8"),
        ("local_bytes", "i8"),
        ("frame_bytes", "i8"),
        ("arena_base", "i8"),
        ("arena_bytes", "i8"),
        ("n_allocations", "i8"),
        ("n_plans", "i8"),
        ("l2_half_bytes", "i8"),
        ("l2_lines", "i8"),
        ("l1_held", "i8"),
        ("n_ctas", "i8"),
        ("cluster_stride", "i8"),
        ("grid_x", "i8"),
        ("grid_y", "i8"),
        ("grid_z", "i8"),
        ("block_x", "i8"),
        ("block_y", "i8"),
        ("block_z", "i8"),
        ("cluster_x", "i8"),
        ("cluster_y", "i8"),
        ("cluster_z", "i8"),
        ("cluster_size", "i8"),
        ("registers_per_thread", "i8"),
        ("sm_registers", "i8"),
        # what to do
        ("values", "i8"),
        ("trace_level", "i8"),
        ("max_steps", "i8"),
        ("event_stop", "i8"),
        ("until", "i8"),
        ("schedule", "i8"),
        ("clock_mhz", "i8"),
        ("start_ns", "i8"),
        ("fixed_registers", "i8"),
        ("seed", "i8"),
        # progress
        ("now", "i8"),
        ("sequence", "i8"),
        ("heap_size", "i8"),
        ("ring_time", "i8"),
        ("ring_floor", "i8"),
        ("steps", "i8"),
        ("progress", "i8"),
        ("retry_progress", "i8"),
        ("retries", "i8"),
        ("next_cta", "i8"),
        ("ctas_done", "i8"),
        ("n_events", "i8"),
        ("n_lanes", "i8"),
        ("lanes_total", "i8"),
        ("events_total", "i8"),
        ("next_identity", "i8"),
        ("next_mbarrier", "i8"),
        ("async_free", "i8"),
        ("asyncs_open", "i8"),
        ("clock_reads", "i8"),
        ("write_free", "f8"),
        ("hbm_free", "f8"),
        # Recent traffic from HBM and between the halves of L2 (bytes per cycle), and when it was that.
        ("hbm_traffic", "f8"),
        ("hbm_traffic_at", "f8"),
        ("given_traffic", "f8"),
        ("given_traffic_at", "f8"),
        ("cross_traffic", "f8"),
        ("cross_traffic_at", "f8"),
        ("cross_free", "f8"),
        ("memory_seed", "i8"),
        ("hbm_fetched", "i8"),
        # what the access being executed moves (bytes): into its GPC, from the other half of L2, from HBM, and of that across
        ("moved", "f8"),
        ("crossed", "i8"),
        ("missed", "i8"),
        ("missed_across", "i8"),
        # which access it is, and when lines have come that others are bringing
        ("flight", "i8"),
        ("there", "i8"),
        # copies that leave SMs: bytes that each SM which stores has stored since the start, when that was so, and how many do
        ("stored", "f8"),
        ("stored_at", "f8"),
        ("storing", "i8"),
        ("instructions_issued", "i8"),
        ("last_allocation", "i8"),
        # the instruction being executed
        ("warp", "i8"),
        ("node", "i8"),
        ("pc", "i8"),
        ("mask", "i8"),
        ("latency", "i8"),
        ("issue", "i8"),
        ("retry", "i8"),
        # an error: a code of h100sim.faults and its arguments
        ("error", "i8"),
        ("error_a", "i8"),
        ("error_b", "i8"),
        ("error_c", "i8"),
        ("error_warp", "i8"),
        ("error_pc", "i8"),
        ("grow", "i8"),
        ("host", "i8"),
    ],
    align=True,
)

#: Functions that compiled code calls with the address of the context.
context = record(CONTEXT)
timing = record(TIMING, CONTEXT, "timing")
instructions = table(CONTEXT, "instructions", INSTRUCTION)
warps = table(CONTEXT, "warps", WARP)
nodes = table(CONTEXT, "nodes", NODE)
ctas = table(CONTEXT, "ctas", CTA)
mbarriers = table(CONTEXT, "mbarriers", MBARRIER)
barriers = table(CONTEXT, "barriers", BARRIER)
asyncs = table(CONTEXT, "asyncs", ASYNC)
groups = table(CONTEXT, "groups", WARPGROUP)
sms = table(CONTEXT, "sms", SM)
events = table(CONTEXT, "events", EVENT)
cta_info = table(CONTEXT, "cta_info", CTA_INFO)
warp_info = table(CONTEXT, "warp_info", WARP_INFO)
asked = table(CONTEXT, "l2_asked", ASKED)
l1_sectors = table(CONTEXT, "l1_sectors", L1_SECTOR)
