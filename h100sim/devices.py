"""The devices: H100 SXM, H100 PCIe and H200 SXM, every number with where it comes from.

A number is marked ``Spec:`` (a document), ``Measured:`` (a file under ``validate/silicon``) or ``Assumed:`` (and why). Cycles
are SM cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase

from .errors import UsageError


@dataclass(frozen=True)
class Limits:
    """What one SM and one CTA may use. Spec: CUDA C++ Programming Guide 13, "Compute Capabilities", column 9.0."""

    shared_bytes_per_sm: int = 233_472
    shared_bytes_per_cta: int = 232_448
    shared_bytes_static: int = 49_152
    shared_reserved_bytes: int = 1_024
    shared_unit_bytes: int = 128
    registers_per_sm: int = 65_536
    warps_per_sm: int = 64
    ctas_per_sm: int = 32
    threads_per_cta: int = 1_024
    cluster_ctas: int = 16


@dataclass(frozen=True)
class Issue:
    """Schedulers and execution pipes: cycles from issue to a usable result, and cycles of a pipe per machine instruction.

    Measured: validate/silicon/alu_latency.json (latencies); validate/silicon/instruction_rate.json (cycles of a pipe: fma 1.08,
    max, lop3, shl and cvt to bf16x2 2, mad 1.9, ex2 8.3, f64 2); validate/silicon/microbenchmarks.json, entries ``alu_w*``.
    """

    alu_latency: int = 4
    fma_latency: int = 4
    imad_latency: int = 4
    half_latency: int = 8
    #: Assumed: a conversion goes through the same queue as a special function, without its table look-up.
    cvt_latency: int = 12
    mufu_latency: int = 17
    #: Measured: validate/silicon/alu_latency.json.
    f64_latency: int = 8
    #: The uniform datapath. Measured: stall counts of ptxas 13.0 from UIADD3.64 to the HGMMA whose descriptor it makes, and between
    #: two of them (attention with d 128).
    uniform_latency: int = 10
    #: Measured: stall counts of ptxas 13.0 between a comparison and the branch that it steers (validate/silicon/sass.json).
    predicate_latency: int = 13
    #: Assumed: S2R of %tid, %laneid and the like; published for older chips: 20 to 30.
    special_latency: int = 24
    alu_cycles: int = 2
    fma_cycles: int = 1
    half_cycles: int = 2
    imad_cycles: int = 2
    cvt_cycles: int = 2
    mufu_cycles: int = 8
    f64_cycles: int = 2
    uniform_cycles: int = 2
    #: Cycles of special functions, and of fma, that wait for their pipe while their warp goes on. Fitted to the softmax in
    #: validate/silicon/softmax_rate.json, with two and three warps on a scheduler and beside wgmma.
    mufu_queue_cycles: int = 16
    fma_queue_cycles: int = 32
    #: Cycles of a pipe while the tensor core works on wgmma, whose accumulators go through the register file too: each pipe gets to
    #: write a register every four cycles. Measured: validate/silicon/softmax_rate.json: max and cvt to bf16x2 4.0 to 4.2 beside ss, 4.4
    #: to 4.8 beside rs, mad and fma.rn.bf16x2 4.2 to 4.5, max and fma in runs of 60 4.0 each, special functions 10.4 to 10.9. Streams of fma
    #: alone keep wgmma from being issued, which is not modelled: they take 1.1 to 1.9 there, and a wgmma of n 128 133 cycles.
    alu_beside_wgmma_cycles: float = 4.0
    imad_beside_wgmma_cycles: float = 4.0
    half_beside_wgmma_cycles: float = 4.0
    fma_beside_wgmma_cycles: float = 4.0
    mufu_beside_wgmma_cycles: float = 10.7
    #: Assumed: what goes through the queue of special functions, as those.
    cvt_beside_wgmma_cycles: float = 2.7
    #: Assumed: as the others that write registers, and as without wgmma.
    f64_beside_wgmma_cycles: float = 4.0
    uniform_beside_wgmma_cycles: float = 2.0
    #: How many times as long a shuffle takes its pipe then. Measured: the same file.
    shuffle_beside_wgmma: float = 3.6
    #: How much later results are there then. Measured: the chains in the same file; a shuffle 19 cycles beside ss n128, 2 beside rs n64.
    mufu_later_beside_wgmma: int = 4
    shuffle_later_beside_wgmma: int = 10
    #: Assumed: refetch after a taken branch; the loop overhead in the alu_w* chains is consistent with 10 to 14.
    branch_cycles: int = 12
    #: Measured: stall counts of ptxas 13.0 behind a branch (validate/silicon/sass.json).
    branch_not_taken_cycles: int = 5
    #: Measured: validate/silicon/instruction_rate.json, "mov from %clock".
    clock_cycles: int = 6
    #: Fitted to validate/silicon/copy_64.json and gemm_256.json, whose clock records read it once in front of everything.
    globaltimer_cycles: int = 150
    #: Measured: the timelines of validate/silicon, setmaxnreg in either direction with registers to spare.
    setmaxnreg_cycles: int = 60


@dataclass(frozen=True)
class Fetch:
    """Instruction fetch of an SM, in lines of 128 bytes; every launch starts without code. Measured:
    validate/silicon/instruction_fetch.json: straight code takes 137 cycles per KB the first time and 62 later; code behind a
    jump of 1 KB or 4 KB takes 63 more. Code beyond 32 KB, which would be fetched again, is not modelled."""

    line_cycles: int = 17
    latency_cycles: int = 40
    #: Assumed: as many as cover the latency.
    lines_ahead: int = 1


@dataclass(frozen=True)
class SharedMemory:
    """The shared-memory port. Measured: validate/silicon/shared_wavefronts.json (a wavefront of up to 128 bytes a cycle; how many
    an access takes is in ``h100sim.layouts.banks``). Assumed: 29 cycles to load, as published for H800 (arXiv 2402.13499)."""

    load_latency: int = 29
    store_latency: int = 12
    #: Assumed: work that may wait in front of the port before the issuing warp is held.
    queue_cycles: int = 32
    #: Measured: validate/silicon/instruction_rate.json, one warp: accesses of up to 8 bytes a lane, and of 16.
    issue_cycles: int = 4
    wide_issue_cycles: int = 8


@dataclass(frozen=True)
class ClusterNetwork:
    """The network between the CTAs of a cluster, for each SM. Measured: validate/silicon/cluster_memory.json (a load takes 157 to 174
    cycles longer than one from the SM itself; loads 17.2 B/clk of a CTA, copies of 16 KB in 990 cycles; 64 KB of stores are
    issued in 2,340 cycles, 15 KB ahead of what has left); timing of copies published for an H200: 21.3 B/clk."""

    #: Stores leave an SM in packets (``h100sim.layouts.banks.packets``). Measured: validate/silicon/shared_wavefronts.json,
    #: ``st.async``, 1.571 cycles a packet.
    packets_per_cycle: float = 0.6365
    bytes_per_cycle: float = 21.3
    load_bytes_per_cycle: float = 17.5
    load_latency: int = 185
    copy_latency: int = 150
    #: Work that may wait in front of the network before the issuing warp is held.
    queue_cycles: int = 730


@dataclass(frozen=True)
class Barriers:
    """Measured: validate/silicon/barrier_round_trip.json: round trip between two warps through mbarriers 112 cycles, through
    named barriers 68, bar.sync of two warps 16; microbenchmarks.json ``pingpong``: arrive 8, try_wait on a completed phase 48."""

    mbarrier_arrive_cycles: int = 8
    #: Measured: validate/silicon/tma_load_latency.json, the time to the second clock.
    mbarrier_expect_cycles: int = 14
    #: Measured: tma_bandwidth.json, whose boxes of 64 rows come as fast as a thread asks for them; 71 cycles with a record of 44 in
    #: timelines of an H200 (43 published).
    mbarrier_wait_latency: int = 30
    #: From an arrival (or a completed copy) to the wake-up of a suspended try_wait: half a round trip less the repeated try_wait.
    mbarrier_wake_cycles: int = 15
    #: How much later a group of lanes wakes whose warp has others that wait for it. Measured: barrier_round_trip.json, where
    #: one lane waits and the others stand behind (271 cycles a round), against all others gone (112).
    mbarrier_wake_parted_cycles: int = 79
    #: Assumed: how long a failed try_wait suspends its warp at most (published for an H200: 7,776 cycles).
    mbarrier_suspend_cycles: int = 7_776
    named_release_cycles: int = 13
    named_arrive_cycles: int = 2
    #: How much later a barrier opens for those that sync when the last to come only arrives.
    named_arrive_delay_cycles: int = 17
    named_wake_cycles: int = 14
    #: Measured: validate/silicon/store_bandwidth.json, two CTAs that arrive together: an arrive that releases takes 400 cycles,
    #: a relaxed one 17, and the wait behind either passes 58 later.
    cluster_arrive_cycles: int = 11
    cluster_arrive_release_cycles: int = 395
    cluster_release_cycles: int = 58
    #: Measured: validate/silicon/pipeline_step.json, with and without fence.proxy.async.
    fence_cycles: int = 30


@dataclass(frozen=True)
class TensorCore:
    """wgmma. Measured: validate/silicon/wgmma_rate.json: one m64nNk16 takes max(N/2, 16 + N/4) cycles when A comes from shared
    memory and max(N/2, 13) when it comes from registers; validate/silicon/wgmma_issue.json: when they are issued and done."""

    operand_cycles: int = 16
    floor_cycles: int = 13
    #: From N/2 cycles behind the start of an operation until it is done, and how much sooner that is with A in registers; B may be
    #: transposed. Fitted together with ``fence_cycles`` to the times of validate/silicon/wgmma_issue.json.
    tail_cycles: int = 22
    registers_cycles: int = 10
    #: Fitted to the first issue in validate/silicon/wgmma_issue.json. One fence behind the other takes 9 cycles there
    #: (instruction_rate.json), and wgmma_latency.json has 9 cycles more in all; Assumed: its first clock is read before its barrier opens.
    fence_cycles: int = 4
    issue_cycles: int = 4
    #: Operations of an SM that are issued and not done before the next one has to wait.
    queue_depth: int = 7
    #: Cycles of a wgmma in which loads and stores that wait get the port of shared memory at its cost. Measured:
    #: validate/silicon/shared_port.json, stores beside two warpgroups: 2.2 for n 128, 2.0 for n 256.
    port_cycles_per_wgmma: float = 2.2


@dataclass(frozen=True)
class Tma:
    """The copy engine of an SM. Measured: validate/silicon/tma_load_latency.json (tensor loads from L2: 44 cycles until the
    thread goes on, then about 280 + bytes/110 until a waiting thread sees one box, 44 more per further small box, which is the loop over
    lanes that an assembler makes for a thread that elect.sync has not chosen; about 200
    more the first time that an SM uses a map), tma_store_latency.json (stores leave at 32 B/clk, and are done when they have
    left), tma_bandwidth.json; validate/silicon/bulk_copy_latency.json (one-dimensional copies)."""

    issue_cycles: int = 44
    bulk_issue_cycles: int = 38
    #: What a thread that elect.sync chose takes for a copy: 3 for each of four, 10 for each of the next. Measured: tma_elected.json.
    elected_cycles: int = 7
    #: How much sooner the engine has that copy. Measured: the same file.
    elected_lead_cycles: int = 5
    latency_cycles: int = 242
    bulk_latency_cycles: int = 216
    bytes_per_cycle: float = 110.0
    #: Measured: tma_elected.json, boxes of 1 KB.
    box_cycles: int = 12
    descriptor_cycles: int = 70
    store_issue_cycles: int = 5
    store_descriptor_cycles: int = 82
    store_latency_cycles: int = 28
    store_bytes_per_cycle: float = 32.0
    #: Measured: validate/silicon/store_bandwidth.json, f32 sums.
    reduce_bytes_per_cycle: float = 25.5
    #: From the last byte read to the end of the bulk group.
    store_done_cycles: int = 6


@dataclass(frozen=True)
class MemorySystem:
    """L1, L2 and HBM. Measured, under validate/silicon: tma_bandwidth.json (HBM: 2,440 B/clk for all SMs; microbenchmarks.json
    ``tmabw_*``: 4.13 TB/s) and what is named with a number."""

    #: Spec: NVIDIA H100 Tensor Core GPU Architecture whitepaper. Of the 60 MB of an H200, half is on each side:
    #: validate/silicon/l2_capacity.json.
    l2_bytes: int = 50 * 1024 * 1024
    #: A load that L1 does not hold, from the nearer GPCs, and how much later it is there for the others; how much later yet, the
    #: first time that a line is used on the side of L2 that is not its home. Measured: l2_latency.json, hbm_latency.json (174 cycles
    #: for a box of 8 KB, 156 for 16 KB, 143 for 32 KB).
    l2_latency: int = 250
    l2_far_cycles: int = 31
    l2_cross_cycles: int = 143
    #: What L2 delivers to all SMs. The two SMs of a TPC that ask for a line together get it at once; for other SMs of their GPC it
    #: takes part of the time again. Measured: tma_bandwidth.json (8 MB of their own: 33.35 B/clk for each of 132 SMs),
    #: l2_sharing.json (33 neighbours, 8 SMs apart). Assumed: together is within the latency of a line.
    l2_bytes_per_cycle: float = 4_416.0
    #: What all SMs get together, lines that several have asked for counted for each. Measured: tma_bandwidth.json, 132 SMs.
    l2_shared_bytes_per_cycle: float = 11_700.0
    l2_repeat_percent: int = 30
    l2_merge_cycles: int = 300
    #: Mean wait behind others on that way where half of its rate is in use; it goes with use / (1 - use), as in a queue of random
    #: arrivals. Measured: tma_bandwidth.json, boxes of 132 SMs with one to four in flight.
    l2_wait_cycles: int = 40
    #: What crosses between the halves of L2, half of what HBM delivers. Assumed: no less than HBM's.
    cross_bytes_per_cycle: float = 1_225.0
    #: What an SM takes in of loads, and what its L1 holds with its shared memory. Measured: load_bandwidth.json, 16 warps.
    load_bytes_per_cycle: float = 90.0
    l1_latency: int = 33
    l1_bytes: int = 256 * 1024
    #: How much later than a load from L2 an atomic operation is back; for each lane more at one address, in global or shared memory.
    #: Measured: load_latency.json, 32 lanes that add to one word: 520 cycles against 268 of a load in global memory, 88 against 23 in
    #: shared memory. Assumed: lanes take as long in L2 as in shared memory, and the rest is that of one.
    atomic_cycles: int = 204
    atomic_lane_cycles: int = 2
    #: Measured: validate/silicon/store_bandwidth.json: 16 neighbouring SMs store at the full rate of each, 132 SMs at 18.35 B/clk.
    l2_write_bytes_per_cycle: float = 2_420.0
    #: How much later than from L2 a line is there from HBM: always, and some more, evenly spread, for so many of a hundred pieces
    #: of 4 KB. Measured: l2_latency.json and hbm_latency.json, 1 SM.
    hbm_extra_latency: int = 292
    hbm_late_percent: int = 12
    hbm_late_cycles: int = 150
    hbm_late_spread: int = 300
    hbm_bytes_per_cycle: float = 2_440.0
    #: The same on HBM and between the halves of L2. Measured: tma_bandwidth.json, 132 SMs with one box in flight and 66 with four;
    #: hbm_latency.json, whose SMs begin together.
    load_wait_cycles: int = 152
    #: Start of the random sequence of HBM.
    seed: int = 0
    #: Stores of registers leave an SM by sectors of 32 bytes; one that is not written as a whole takes longer. Measured:
    #: validate/silicon/global_stores.json.
    store_sector_cycles: int = 1
    store_part_cycles: int = 2
    #: How many stores may wait on their way out before the issuing warp is held; those of 16 bytes a lane and those with sectors
    #: in part count as two. Measured: the same file.
    store_queue: int = 48
    #: How many more wait in the queues of the schedulers, with their registers. Measured: cycles of gemm_5_two_consumers (512 stores,
    #: 28 more than without) and gemm_3_tma (64 stores, none of which waits).
    store_scheduler_queue: int = 32
    #: Assumed: bytes that may wait for L2 before the issuing warp is held.
    store_queue_bytes: int = 2_048


@dataclass(frozen=True)
class DeviceModel:
    """A GPU model; :func:`model` picks one by name, :func:`dataclasses.replace` changes numbers."""

    name: str
    sms: int
    clock_mhz: int
    #: SMs of each GPC, and how many TPCs (of two SMs) belong to none: see :mod:`h100sim.placement`.
    gpcs: tuple[int, ...]
    lone_tpcs: int = 0
    limits: Limits = Limits()
    issue: Issue = Issue()
    fetch: Fetch = Fetch()
    shared: SharedMemory = SharedMemory()
    network: ClusterNetwork = ClusterNetwork()
    barriers: Barriers = Barriers()
    tensor: TensorCore = TensorCore()
    tma: Tma = Tma()
    memory: MemorySystem = MemorySystem()
    #: From the end of a CTA to the first instruction of the next one in its place. Measured: validate/silicon/cta_launch.json.
    cta_cycles: int = 312
    #: From the end of a launch to the first instruction of the one that waits behind it, in nanoseconds; a quarter less where one CTA
    #: runs. Measured: validate/silicon/launch_gap.json, less the probe's last store.
    launch_gap_ns: int = 1_440
    #: The half of L2 on the side of each GPC, and a class of distance: an SM is far from half of the lines. Measured, of one H200:
    #: validate/silicon/l2_latency.json, the cycles of each SM. Assumed for H100.
    gpc_sides: tuple[tuple[int, int], ...] = ((0, 0), (1, 0), (1, 0), (1, 1), (0, 1), (0, 1), (0, 0), (1, 1))


#: Spec: NVIDIA H100 Tensor Core GPU Architecture whitepaper (SM counts, L2, memory). GPC sizes depend on the part. Measured, of one
#: H200: validate/silicon/cta_placement.json. Assumed for H100.
MODELS: dict[str, DeviceModel] = {
    "h100-sxm": DeviceModel(
        name="h100-sxm",
        sms=132,
        clock_mhz=1_755,
        gpcs=(16, 16, 16, 16, 16, 16, 18, 18),
        memory=MemorySystem(hbm_bytes_per_cycle=1_700.0),
    ),
    "h100-pcie": DeviceModel(
        name="h100-pcie",
        sms=114,
        clock_mhz=1_755,
        gpcs=(16, 16, 16, 16, 16, 16, 18),
        memory=MemorySystem(hbm_bytes_per_cycle=1_040.0),
    ),
    "h200-sxm": DeviceModel(
        name="h200-sxm",
        sms=132,
        clock_mhz=1_785,
        gpcs=(8, 16, 16, 16, 16, 16, 18, 18),
        lone_tpcs=4,
        memory=MemorySystem(l2_bytes=60 * 1024 * 1024),
    ),
}

DEFAULT_MODEL = "h100-sxm"


def model(name: str | DeviceModel = DEFAULT_MODEL, **changes: object) -> DeviceModel:
    """Return the model with a name (or the model itself), with fields replaced. Raises UsageError for an unknown name and for numbers
    outside their ranges."""
    if not isinstance(name, DeviceModel):
        if name not in MODELS:
            raise UsageError(f"device must be one of {', '.join(MODELS)}, not {name}")
        name = MODELS[name]
    found = replace(name, **changes) if changes else name  # type: ignore[arg-type]
    for number in numbers(found):
        part, _, field = number.rpartition(".")
        require_number(number, getattr(getattr(found, part) if part else found, field))
    return found


def changed(device: DeviceModel, changes: Mapping[str, float]) -> DeviceModel:
    """Return a model with numbers replaced: ``{"tma.latency_cycles": 800, "sms": 1}``.

    Raises UsageError for a name that is no number of the model, or a value that is none or outside the number's range.
    """
    for name, value in changes.items():
        part, _, number = name.rpartition(".")
        owner = getattr(device, part, None) if part else device
        if is_dataclass(owner) and not isinstance(owner, type):
            known = {f.name: getattr(owner, f.name) for f in fields(owner)}
        else:
            known = {}
        if not isinstance(known.get(number), int | float):
            names = ", ".join(n for n in numbers(device) if not known or n.startswith(f"{part}."))
            raise UsageError(f"number of the device must be one of {names}, not {name}")
        require_number(name, value)
        if isinstance(known[number], int) and value != int(value):
            raise UsageError(f"{name} must be a whole number, not {value}")
        new = {number: type(known[number])(value)}
        device = replace(device, **({part: replace(owner, **new)} if part else new))  # type: ignore[arg-type,type-var]
    return device


#: What a number may be, by the first pattern that its name fits: so much at least and at most. A divisor is not 0, and what counts
#: things is at least 1. Schedules of basic blocks are in 32 bits, so what they are made of is small: arithmetic that takes longer than
#: a few hundred cycles is no GPU's. Other times stay far below the 2^56 cycles that a launch may take.
RANGES: tuple[tuple[str, float, float], ...] = (
    ("sms", 1, 1024),
    ("clock_mhz", 1, 100_000),
    ("lone_tpcs", 0, 512),
    # Spec: PTX ISA 9.1, "Matrix Descriptor Format": 14 bits of 16 bytes.
    ("limits.shared_bytes_per_cta", 1, 1 << 18),
    ("limits.shared_bytes_*", 1, 1 << 20),
    ("limits.shared_reserved_bytes", 0, 1 << 16),
    ("limits.shared_unit_bytes", 1, 1 << 16),
    ("limits.registers_per_sm", 1, 1 << 20),
    # Spec: the same, "Special Registers": %cluster_ctarank and the masks of a multicast have 16 CTAs, a CTA has 1,024 threads.
    ("limits.cluster_ctas", 1, 16),
    ("limits.*", 1, 1024),
    ("issue.*", 0, 1 << 8),
    ("shared.load_latency", 0, 1 << 16),
    ("memory.l2_latency", 0, 1 << 16),
    ("memory.seed", 0, (1 << 63) - 1),
    ("memory.l*_bytes", 0, 1 << 40),
    ("*_percent", 0, 100),
    ("*per_cycle", 0.001, 1 << 20),
    ("tensor.port_cycles_per_wgmma", 0.001, 1 << 10),
    ("tensor.queue_depth", 1, 1 << 10),
    ("barriers.mbarrier_suspend_cycles", 1, 1 << 40),
    ("fetch.lines_ahead", 0, 1 << 10),
    ("memory.store_*queue", 0, 1 << 20),
    ("*", 0, 1 << 40),
)


def range_of(name: str) -> tuple[float, float]:
    """Return the least and the most that a number of a model may be."""
    return next((least, most) for pattern, least, most in RANGES if fnmatchcase(name, pattern))


def require_number(name: str, value: object) -> None:
    """Raise UsageError for a value that the number of a model with this name cannot have."""
    least, most = range_of(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise UsageError(f"{name} must be a number from {least:,} to {most:,}, not {value}")


def numbers(device: DeviceModel) -> list[str]:
    """Return the names of the numbers of a model that :func:`changed` takes."""
    found = []
    for part in fields(device):
        value = getattr(device, part.name)
        if isinstance(value, int | float):
            found.append(part.name)
        elif is_dataclass(value):
            found += [f"{part.name}.{f.name}" for f in fields(value)]
    return found


def compiled_numbers(model: DeviceModel) -> dict[str, float]:
    """Return the numbers of a model by the names that compiled code knows them by (``TIMING`` in :mod:`h100sim.state`)."""
    return {
        **vars(model.issue),
        **{f"fetch_{name}": value for name, value in vars(model.fetch).items()},
        **{f"shared_{name}": value for name, value in vars(model.shared).items()},
        **{f"cluster_{name}": value for name, value in vars(model.network).items()},
        **vars(model.barriers),
        **{f"wgmma_{name}": value for name, value in vars(model.tensor).items()},
        **{f"tma_{name}": value for name, value in vars(model.tma).items()},
        **vars(model.memory),
        "cta_cycles": model.cta_cycles,
    }
