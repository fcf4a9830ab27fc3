"""Findings in words: from the numbers of the compiled checks to :class:`Hazard`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hazard import Access, Hazard
from ..intervals import mbarrier_name
from ..memory.windows import SHARED_START
from ..trace import KernelInfo
from . import tables as t

_ISA = 'PTX ISA 9.1, "'
_MODEL = _ISA + 'Memory Consistency Model: Causality order"'
MBARRIER_RULE = _ISA + 'Parallel Synchronization and Communication Instructions: mbarrier"'
_BARRIER = _ISA + 'Parallel Synchronization and Communication Instructions: bar, barrier"'
_FENCE = _ISA + 'Parallel Synchronization and Communication Instructions: membar, fence" (fence.proxy.async)'
WGMMA_RULE = _ISA + 'Asynchronous Warpgroup Level Matrix Instructions"'
_BULK = _ISA + 'Data Movement and Conversion Instructions: cp.async.bulk"'


@dataclass(frozen=True)
class Words:
    """What is needed to put findings into words: the kernel, its opcodes, and the shared address of every mbarrier."""

    kernel: KernelInfo
    warps_per_cta: int
    mbarrier_addresses: dict[int, int]

    def mbarrier(self, identity: int) -> str:
        """Return the name of an mbarrier."""
        return (
            mbarrier_name(self.kernel, self.mbarrier_addresses[identity]) if identity in self.mbarrier_addresses else "an mbarrier"
        )

    def role(self, warp: int) -> str:
        """Return the role of a warp, with its rank and CTA."""
        rank = warp % self.warps_per_cta
        return f"{self.kernel.role(rank)} (warp {rank} of CTA {warp // self.warps_per_cta})"

    def opcode(self, pc: int) -> str:
        """Return the opcode of an instruction."""
        return self.kernel.opcodes[pc] if 0 <= pc < len(self.kernel.opcodes) else ""

    def place(self, low: int, high: int, space: int) -> str:
        """Return bytes in words, with the tile that they belong to."""
        span = f"{'shared' if space else 'global'} memory {low:#x} to {high - 1:#x}"
        if not space:
            return span
        for tile in self.kernel.tiles:
            if (index := _tile_index(tile, low)) is not None:
                return f"{span} (tile {tile['name']}{index})"
        return span


def _tile_index(tile: dict, address: int) -> str | None:
    """Return "[2]" if an address lies in the third of several tiles, "" for a single one, None if outside."""
    if tile.get("space", "shared") != "shared" or "bytes" not in tile:
        return None
    count = int(np.prod(tile.get("count") or [1]))
    index, rest = divmod(address - int(tile["offset"]), int(tile["bytes"]))
    if rest < 0 or not 0 <= index < count:
        return None
    return f"[{index}]" if count > 1 else ""


def hazards_of(words: Words, findings: np.ndarray) -> list[Hazard]:
    """Return the hazards of findings (FINDING_COLUMNS), in the order in which they were found."""
    return [_WORDINGS[int(f[t.F_CODE])](words, f) for f in findings]


# --- the two sides ----------------------------------------------------------------------------------------------------


def _access(words: Words, f: np.ndarray, at: int, space: str, what: str = "", has_bytes: bool = True) -> Access | None:
    warp, pc, cta, event, time, flags, _ = (int(x) for x in f[at : at + 7])
    if event < 0:
        return None
    low, high = (int(f[t.F_LOW]), int(f[t.F_HIGH]) - 1) if has_bytes and f[t.F_LOW] >= 0 else (-1, -1)
    return Access(
        what=what or _what(flags),
        role=words.role(warp),
        where=words.kernel.place(pc),
        op=words.opcode(pc),
        space=space,
        first_byte=low,
        last_byte=high,
        cycle=time,
        warp=warp,
        cta=cta,
        event=event,
        pc=pc,
    )


def _what(flags: int) -> str:
    """Return what an access does, as a noun."""
    shared, writes = flags & t.IN_SHARED, flags & t.WRITE
    if flags & t.MBARRIER_WORD:
        return "mbarrier.init"
    if flags & t.TENSORMAP:
        return "read of the tensor map by a copy"
    if flags & t.WGMMA:
        return "operand read by wgmma"
    if flags & t.TMA:
        return ("write by a bulk load" if writes else "read by a bulk store") if shared else (
            "write by a bulk store" if writes else "read by a bulk load"
        )  # fmt: skip
    if flags & t.CP_ASYNC:
        return "write by cp.async" if writes else "read by cp.async"
    if flags & t.STRONG:
        return "atomic or volatile access"
    return "write" if writes else "read"


def _done(words: Words, flags: int, warp: int) -> str:
    """Return when an access is over, as a clause."""
    if flags & t.TENSORMAP:
        return "the copy that uses the tensor map has completed"
    if flags & t.WGMMA:
        return "the wgmma that reads them has completed"
    if flags & t.TMA:
        if flags & t.WRITE:
            return "the copy that writes them has completed"
        return "the copy that reads them has read its source" if flags & t.IN_SHARED else "the copy that reads them has completed"
    if flags & t.CP_ASYNC:
        return "the cp.async that touches them has completed"
    return f"the {'write' if flags & t.WRITE else 'read'} by {words.kernel.role(warp % words.warps_per_cta)}"


def _doing(flags: int) -> str:
    """Return a participle for a later access."""
    if flags & t.WGMMA:
        return "read by wgmma"
    if flags & t.TMA or flags & t.TENSORMAP:
        return "written by a copy" if flags & t.WRITE else "read by a copy"
    return "written" if flags & t.WRITE else "read"


def _edge(words: Words, f: np.ndarray) -> tuple[str, str]:
    """Return (the missing edge, the fix) for two accesses without order."""
    flags, object_ = int(f[t.F_FIRST + 5]), int(f[t.F_FIRST + 6])
    first, second = int(f[t.F_FIRST]), int(f[t.F_SECOND])
    role = words.kernel.role(first % words.warps_per_cta)
    other = words.kernel.role(second % words.warps_per_cta)
    if flags & t.WGMMA:
        return (
            f"wgmma.wait_group by {role} before it releases the bytes, and a wait of {other} for that release",
            "put wgmma.wait_group before the arrive or barrier that releases these bytes",
        )
    if (flags & t.TMA and flags & t.WRITE and flags & t.IN_SHARED) or (
        flags & t.TMA and not flags & t.IN_SHARED and flags & t.READ
    ):
        name = words.mbarrier(object_)
        return (
            f"a wait of {other} on {name} that sees the phase in which this copy completes",
            f"wait on {name} (mbarrier.try_wait until it is True, with this copy's parity) before this access",
        )
    if flags & t.TMA:
        wait = "cp.async.bulk.wait_group.read" if flags & t.READ else "cp.async.bulk.wait_group"
        return (
            f"{wait} by the thread that issued and committed the copy, then a barrier to {other}",
            f"let the issuing thread commit the copy and execute {wait} 0 before the barrier that allows this access",
        )
    if flags & t.CP_ASYNC:
        return (
            f"cp.async.wait_group by {role}, then an arrive or barrier to {other}",
            "put cp.async.wait_all (or cp.async.mbarrier.arrive.noinc) before the arrive or barrier that follows",
        )
    ctas = int(f[t.F_FIRST + 2]), int(f[t.F_SECOND + 2])
    if ctas[0] != ctas[1] and not flags & t.IN_SHARED:
        return (
            f"a release by {role} of CTA {ctas[0]} after its access and an acquire by {other} of CTA {ctas[1]} before its own, in a "
            "scope that holds both CTAs",
            "release after the first access (st.release.gpu, or fence.acq_rel.gpu before a flag is set) and acquire before the second "
            "(ld.acquire.gpu, or fence.acq_rel.gpu after the flag is read); in a cluster barrier.cluster does it",
        )
    return (
        f"an arrive or barrier by {role} after its access, and a wait of {other} for it before its own",
        "put a barrier between the two accesses, or an mbarrier arrive after the first and a wait before the second",
    )


def _space(f: np.ndarray) -> str:
    return "shared" if f[t.F_SPACE] else "global"


def _race(words: Words, f: np.ndarray) -> Hazard:
    missing, fix = _edge(words, f)
    first_flags, second_flags = int(f[t.F_FIRST + 5]), int(f[t.F_SECOND + 5])
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), int(f[t.F_SPACE]))
    done = _done(words, first_flags, int(f[t.F_FIRST]))
    message = f"{place} must be {_doing(second_flags)} after {done}, not without an order"
    return _two_sided(words, f, "race", message, missing, _MODEL, fix)


def _two_sided(words: Words, f: np.ndarray, kind: str, message: str, missing: str, rule: str, fix: str) -> Hazard:
    second = _access(words, f, t.F_SECOND, _space(f))
    assert second is not None, "second access of a finding must be known"
    return Hazard(kind, message, _access(words, f, t.F_FIRST, _space(f)), second, missing, rule, fix, int(f[t.F_COUNT]))


def _fence_name(f: np.ndarray) -> str:
    if int(f[t.F_SECOND + 5]) & t.TENSORMAP:
        return "fence.proxy.tensormap::generic.acquire"
    return "fence.proxy.async.shared::cta" if f[t.F_SPACE] else "fence.proxy.async.global"


def _proxy_race(words: Words, f: np.ndarray) -> Hazard:
    fence = _fence_name(f)
    writer = words.kernel.role(int(f[t.F_FIRST]) % words.warps_per_cta)
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), int(f[t.F_SPACE]))
    proxy = "tensormap" if int(f[t.F_SECOND + 5]) & t.TENSORMAP else "async"
    doing = _doing(int(f[t.F_SECOND + 5]))
    message = f"{place} must be fenced for the {proxy} proxy before it is {doing}, not only ordered by a barrier"
    fix = f"every thread of {writer} executes {fence} after its writes and before the barrier or arrive"
    if proxy == "tensormap":
        fix = "release the map with fence.proxy.tensormap::generic.release and acquire it in every CTA that uses it"
    return _two_sided(words, f, "proxy-race", message, f"{fence} on the way from the write to the copy or wgmma", _FENCE, fix)


def _strict_war(words: Words, f: np.ndarray) -> Hazard:
    fence = _fence_name(f)
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), int(f[t.F_SPACE]))
    message = f"{place} must be fenced between a generic read and the next copy into it, not only ordered by a release"
    missing = f"{fence} by the readers before they release the bytes (contested: many kernels leave it out)"
    fix = f"execute {fence} after the reads and before the arrive"
    return _two_sided(words, f, "strict-proxy-war", message, missing, _FENCE, fix)


def _misuse_word(words: Words, f: np.ndarray) -> Hazard:
    name = words.mbarrier(int(f[t.F_FIRST + 6]))
    again = int(f[t.F_SECOND + 5]) & t.MBARRIER_WORD
    doing = "initialised again" if again else _doing(int(f[t.F_SECOND + 5]))
    message = f"{name} must be invalidated before its bytes are {doing}, not while it is live"
    fix = (
        "initialise it in one thread only, or invalidate it first"
        if again
        else "keep mbarriers apart from tiles, or mbarrier.inval first"
    )
    return _two_sided(words, f, "barrier-misuse", message, "mbarrier.inval between the two", MBARRIER_RULE, fix)


def _init_race(words: Words, f: np.ndarray) -> Hazard:
    name = words.mbarrier(int(f[t.F_FIRST + 6]) if f[t.F_FIRST + 6] >= 0 else int(f[t.F_A]))
    user = words.kernel.role(int(f[t.F_SECOND]) % words.warps_per_cta)
    message = f"{name} must be initialised before {user} uses it, not without an order between the two"
    remote = int(f[t.F_FIRST + 2]) != int(f[t.F_SECOND + 2])
    fix = (
        "fence.mbarrier_init.release.cluster and a cluster barrier after the init"
        if remote
        else "put a barrier of the CTA (bar.sync 0) between the init and the first use"
    )
    first = _access(words, f, t.F_FIRST, "mbarrier", "mbarrier.init")
    second = _access(words, f, t.F_SECOND, "mbarrier", "use of the mbarrier")
    assert second is not None, "user of an mbarrier must be known"
    return Hazard("race", message, first, second, f"a barrier between the init and {user}", MBARRIER_RULE, fix, int(f[t.F_COUNT]))


def _lane_race(words: Words, f: np.ndarray) -> Hazard:
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), 1)
    writes = int(f[t.F_SECOND + 5]) & t.WRITE
    other = f"lane {int(f[t.F_A])}" if f[t.F_A] < 32 else "other lanes"
    done = "written" if int(f[t.F_FIRST + 5]) & t.WRITE else "read"
    message = (
        f"{place} must be {'written' if writes else 'read'} after {other} of the same warp has {done} it, not without an order"
    )
    return _two_sided(
        words, f, "race", message, "bar.warp.sync between the two: lanes of a warp run on their own",
        _ISA + 'Parallel Synchronization and Communication Instructions: bar.warp.sync"',
        "put bar.warp.sync 0xffffffff (__syncwarp) between the two accesses",
    )  # fmt: skip


def _lapped(words: Words, f: np.ndarray) -> Hazard:
    name, phase = words.mbarrier(int(f[t.F_A])), int(f[t.F_B])
    waiter = words.role(int(f[t.F_SECOND]))
    message = f"{name} phase {phase} must complete after {waiter} has seen phase {phase - 1}, not while it may still be on its way"
    first = _access(words, f, t.F_FIRST, "mbarrier", f"last arrival of phase {phase}")
    second = _access(words, f, t.F_SECOND, "mbarrier", f"wait for phase {phase - 1}")
    assert second is not None, "waiter must be known"
    return Hazard(
        "barrier-misuse", message, first, second,
        f"an arrival in phase {phase} that knows of this wait: a slower warp finds the parity of phase {phase} and waits for ever",
        MBARRIER_RULE, "let every warp that waits arrive too, or put a barrier of the waiting warps before the one arrival",
        int(f[t.F_COUNT]),
    )  # fmt: skip


def _strict_init(words: Words, f: np.ndarray) -> Hazard:
    name = words.mbarrier(int(f[t.F_A]))
    message = f"{name} must be fenced with fence.mbarrier_init before a copy completes on it, not only ordered"
    first = _access(words, f, t.F_FIRST, "mbarrier", "mbarrier.init")
    second = _access(words, f, t.F_SECOND, "mbarrier", "copy that completes on it")
    assert second is not None, "copy must be known"
    return Hazard(
        "strict-proxy-war", message, first, second, "fence.mbarrier_init after the init (contested within one CTA)",
        MBARRIER_RULE, "execute fence.mbarrier_init.release.cluster after the inits", int(f[t.F_COUNT]),
    )  # fmt: skip


# --- one-sided findings -----------------------------------------------------------------------------------------------


def _one_sided(
    words: Words, f: np.ndarray, kind: str, message: str, what: str, space: str, missing: str, rule: str, fix: str, before: str = ""
) -> Hazard:
    """``what`` the accesses are called; ``before``: the first one, if it has another name."""
    second = _access(words, f, t.F_SECOND, space, what)
    assert second is not None, "access of a finding must be known"
    first = _access(words, f, t.F_FIRST, space, before or what)
    return Hazard(kind, message, first, second, missing, rule, fix, int(f[t.F_COUNT]))


def _uninitialised(words: Words, f: np.ndarray) -> Hazard:
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), 1)
    message = f"{place} must be written before it is {_doing(int(f[t.F_SECOND + 5]))}, not left as the CTA found it"
    return _one_sided(
        words, f, "uninitialised", message, "", "shared", "a write to these bytes in this CTA",
        _ISA + 'State Spaces: Shared State Space"', "fill the whole tile (zeros for what is masked) before it is read",
    )  # fmt: skip


def _reserved(words: Words, f: np.ndarray) -> Hazard:
    place = words.place(int(f[t.F_LOW]), int(f[t.F_HIGH]), 1)
    doing = _doing(int(f[t.F_SECOND + 5]))
    message = f"{place} must be left to the system, which keeps what lies before {SHARED_START:#x}, not {doing}"
    return _one_sided(
        words, f, "reserved-memory", message, "", "shared", "", _ISA + 'Special Registers: %reserved_smem_offset_begin"',
        f"take the address of a shared variable (they begin at {SHARED_START:#x}), not a number",
    )  # fmt: skip


def _over_arrival(words: Words, f: np.ndarray) -> Hazard:
    name, phase = words.mbarrier(int(f[t.F_A])), int(f[t.F_B])
    message = f"{name} phase {phase - 1} must be waited for before anybody arrives in phase {phase}, not run past"
    return _one_sided(
        words, f, "over-arrival", message, f"arrival in phase {phase}", "mbarrier",
        f"a wait on {name} that saw phase {phase - 1} complete, known to the warp that arrives", MBARRIER_RULE,
        f"let the arrival count of {name} match the arrivals of one phase, or wait before arriving again",
    )  # fmt: skip


def _tx_underflow(words: Words, f: np.ndarray) -> Hazard:
    name, tx = words.mbarrier(int(f[t.F_A])), int(f[t.F_B])
    message = f"{name} must expect every byte that copies complete on it, not {-tx:,} fewer"
    second = _access(words, f, t.F_SECOND, "mbarrier", "copy that completes more than was expected")
    if second is None:
        second = Access("completion of bytes", "", "", "", "mbarrier", -1, -1, 0, -1, int(f[t.F_CTA]), -1, -1)
    return Hazard(
        "tx-underflow", message, None, second, "expect_tx of the missing bytes in this phase", MBARRIER_RULE,
        "expect the bytes of the whole box: clipping at the tensor's edge does not make a copy shorter",
        int(f[t.F_COUNT]),
    )  # fmt: skip


def _lifetime_remote(words: Words, f: np.ndarray) -> Hazard:
    cta = int(f[t.F_CTA])
    message = f"CTA {cta} must not end before other CTAs have finished with its shared memory, not even in another schedule"
    what = "end of the CTA" if f[t.F_B] else "access to the CTA that has ended"
    missing = f"a wait of CTA {cta} for the last access of {words.role(int(f[t.F_A])) if f[t.F_B] else 'the other CTA'}"
    return _one_sided(
        words, f, "lifetime", message, what, "shared", missing,
        _ISA + 'State Spaces: Shared State Space" (shared::cluster)',
        "end with a cluster barrier, or let the producer wait for the last empty phases",
    )  # fmt: skip


def _lifetime_store(words: Words, f: np.ndarray) -> Hazard:
    message = "bulk stores must have read shared memory before the thread that issued them ends, not while they are pending"
    return _one_sided(
        words, f, "lifetime", message, "end of the warp", "shared",
        "cp.async.bulk.wait_group.read 0 by the issuing thread", _BULK,
        "commit the last group and execute cp.async.bulk.wait_group.read 0 (or wait_group 0) before the end",
    )  # fmt: skip


def _lifetime_load(words: Words, f: np.ndarray) -> Hazard:
    message = "bulk load must be waited for before the CTA that it writes to ends, not left in flight"
    name = words.mbarrier(int(f[t.F_SECOND + 6]))
    return _one_sided(
        words, f, "lifetime", message, "", "shared", f"a wait on {name} that sees this copy's phase complete", _BULK,
        f"do not issue copies that nobody uses, or wait on {name} before the end",
    )  # fmt: skip


def _barrier_counts(words: Words, f: np.ndarray) -> Hazard:
    before, now = int(f[t.F_B]) >> 32, int(f[t.F_B]) & 0xFFFFFFFF
    message = f"barrier {int(f[t.F_A])} must have one thread count in a generation, not {before} and {now}"
    return _one_sided(
        words, f, "barrier-misuse", message, f"arrival that counts {now} threads", "barrier", "", _BARRIER,
        "give the same total of waiting and arriving threads at every site of this barrier", f"arrival that counts {before} threads",
    )  # fmt: skip


def _barrier_twice(words: Words, f: np.ndarray) -> Hazard:
    twice = f"not counted twice in generation {int(f[t.F_B])}"
    message = f"barrier {int(f[t.F_A])} must be released before the same warp arrives again, {twice}"
    return _one_sided(
        words, f, "barrier-misuse", message, "second arrival of the warp", "barrier",
        "a sync that passed the barrier before", _BARRIER,
        "use two barriers in turn with a handshake, or sync instead of arrive",
    )  # fmt: skip


def _barrier_ahead(words: Words, f: np.ndarray) -> Hazard:
    generation = int(f[t.F_B])
    name = f"barrier {int(f[t.F_A])} generation {generation - 1}"
    message = f"{name} must be known to be over before a warp arrives again, not run past"
    return _one_sided(
        words, f, "barrier-misuse", message, f"arrival in generation {generation}", "barrier",
        f"an edge from a warp that passed generation {generation - 1} to this warp", _BARRIER,
        "use two barriers in turn with a handshake, or sync instead of arrive",
    )  # fmt: skip


def _cluster_again(words: Words, f: np.ndarray) -> Hazard:
    message = f"barrier.cluster.wait must follow an arrive of its own thread, not another wait for generation {int(f[t.F_B])}"
    return _one_sided(
        words, f, "barrier-misuse", message, "second wait of the warp", "barrier", "barrier.cluster.arrive before this wait",
        _ISA + 'Parallel Synchronization and Communication Instructions: barrier.cluster"',
        "put barrier.cluster.arrive before it (a wait without one meets nobody), or take the wait out",
    )  # fmt: skip


def _divergent(words: Words, f: np.ndarray) -> Hazard:
    opcode = words.opcode(int(f[t.F_SECOND + 1]))
    some, alive = int(f[t.F_A]), int(f[t.F_B])
    message = f"{opcode} must be executed by all lanes of the warp together, not by {some:#010x} of {alive:#010x}"
    return _one_sided(
        words, f, "divergent-collective", message, "execution by some lanes", "barrier", "", _ISA + '.aligned"',
        "let the lanes meet first (bar.warp.sync), and keep one site; or use the form without .aligned",
    )  # fmt: skip


_WORDINGS = {
    t.RACE: _race,
    t.PROXY_RACE: _proxy_race,
    t.STRICT_WAR: _strict_war,
    t.MISUSE_WORD: _misuse_word,
    t.UNINITIALISED: _uninitialised,
    t.RESERVED: _reserved,
    t.OVER_ARRIVAL: _over_arrival,
    t.TX_UNDERFLOW: _tx_underflow,
    t.LIFETIME_REMOTE: _lifetime_remote,
    t.LIFETIME_STORE: _lifetime_store,
    t.LIFETIME_LOAD: _lifetime_load,
    t.BARRIER_COUNTS: _barrier_counts,
    t.BARRIER_TWICE: _barrier_twice,
    t.BARRIER_AHEAD: _barrier_ahead,
    t.DIVERGENT: _divergent,
    t.INIT_RACE: _init_race,
    t.STRICT_INIT: _strict_init,
    t.LANE_RACE: _lane_race,
    t.LAPPED: _lapped,
    t.CLUSTER_AGAIN: _cluster_again,
}
