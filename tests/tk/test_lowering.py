"""What every operation says about its PTX is what it emits: the docstring names each instruction but address arithmetic."""

import inspect
import re

import pytest

from h100sim import tk
from h100sim.tk.builder import current
from h100sim.tk.group import Group
from h100sim.tk.shared_maps import BINARY, FILLS, UNARY

SPACES = {
    "tk": tk, "tk.warp": tk.warp, "tk.warpgroup": tk.warpgroup, "tk.tma": tk.tma, "tk.tma.cluster": tk.tma.cluster,
    "tk.cluster": tk.cluster, "tk.pdl": tk.pdl, "tk.group": Group,
}  # fmt: skip
#: What makes tiles and names, or whole kernels, without an instruction of its own.
MAKERS = {
    "barrier", "cgl", "col_vec", "crt", "crv", "cst", "csv", "everyone", "gl", "group", "kernel", "lcf", "lcsf", "row_vec", "rt",
    "rv", "semaphore", "semaphores", "st", "sv",
}  # fmt: skip
#: Instructions of address arithmetic, guards and constants, which go without saying.
PLAIN = {
    "add", "and", "bfe", "bfi", "bra", "cvt", "cvta", "div", "mad", "mov", "mul", "not", "or", "prmt", "rem", "selp", "setp",
    "shfl", "shl", "shr", "sub", "xor",
}  # fmt: skip
#: Warps of the kernel of an example where 4 are too few to show anything.
WARPS = {"warpgroups": 8, "warpid": 6, "laneid": 6, "groupid": 6}


def public(space):
    """Return the names of the public functions of a namespace."""
    names = getattr(space, "__all__", None) or vars(space)
    home = getattr(space, "__name__", "")
    return [
        name
        for name in names
        if inspect.isfunction(function := getattr(space, name))
        and name[0] != "_"
        and (hasattr(space, "__all__") or space is Group or function.__module__ == home)
    ]


OPERATIONS = [(space, name) for space, module in SPACES.items() for name in public(module) if name not in MAKERS]


class World:
    """Things to operate on, made on demand inside of a traced kernel. ``lines``: identities of what making them emitted."""

    def __init__(self, x):
        self.X, self.made, self.lines = x, {}, set()

    def __getattr__(self, name):
        makers = {
            "f": lambda: tk.rt(tk.fl, 16, 64), "g": lambda: tk.rt(tk.fl, 16, 64), "fcol": lambda: tk.rt(tk.fl, 16, 64, "col"),
            "square": lambda: tk.rt(tk.bf16, 32, 32),
            "narrow": lambda: tk.rt(tk.bf16, 16, 64), "col": lambda: tk.rt(tk.bf16, 16, 64, "col"),
            "turned": lambda: tk.rt(tk.bf16, 64, 16), "fp8": lambda: tk.rt(tk.fp8e4m3, 16, 64),
            "rows": lambda: tk.col_vec(self.f), "cols": lambda: tk.row_vec(self.f),
            "naive": lambda: tk.rv(tk.fl, 64), "s": lambda: tk.st(tk.bf16, 64, 64), "s2": lambda: tk.st(tk.bf16, 64, 64),
            "sf": lambda: tk.st(tk.fl, 64, 64), "part": lambda: tk.st(tk.bf16, 16, 64), "v": lambda: tk.sv(tk.bf16, 64),
            "flat": lambda: tk.sv(tk.bf16, 64), "sem": self.semaphore, "x": lambda: tk.ptx("mov.f32 {d}, 0f3f800000", out="f"),
            "n": lambda: tk.var(3), "bits": lambda: tk.phasebits(), "ab": lambda: tk.rt(tk.bf16, 16, 16),
            "bc": lambda: tk.rt(tk.bf16, 16, 16, "col"), "acc": lambda: tk.rt(tk.fl, 16, 16),
        }  # fmt: skip
        if name not in self.made:
            before = {id(line) for line in current().lines}
            self.made[name] = makers[name]()
            self.lines |= {id(line) for line in current().lines} - before
        return self.made[name]

    def semaphore(self):
        made = tk.semaphore()
        with tk.elect():
            tk.init_semaphore(made, 1)
        return made


def body(context, inner=lambda: None):
    with context:
        inner()


def run(loop):
    for _ in loop:
        pass


def both(name):
    """Loads or stores of every kind, by ``who``."""

    def example(w, who):
        move = getattr(who, name)
        if name == "load":
            move(w.narrow, w.part if who is tk.warp else w.s)
            move(w.f, w.X, (0, 0))
            move(w.g, w.s if who is not tk.warp else w.part)
            move(w.f, w.sf if who is not tk.warp else w.sf.subtile(16, 64, (0, 0)))
            move(w.s, w.X, (0, 0))
        else:
            move(w.part if who is tk.warp else w.s, w.f)
            move(w.X, w.f, (0, 0))
            move(w.sf if who is not tk.warp else w.sf.subtile(16, 64, (0, 0)), w.f)
            move(w.X, w.s, (0, 0))

    return example


WGMMA = {
    name: (lambda w, name=name: getattr(tk.warpgroup, name)(w.f, w.s, w.s2))
    for name in (f"{m}_{o}" for m in ("mma", "mm") for o in ("AB", "ABt", "AtB", "AtBt"))
}
WARP = {
    **{name: (lambda w, name=name: getattr(tk.warp, name)(w.f)) for name in FILLS},
    **{name: (lambda w, name=name: getattr(tk.warp, name)(w.f, w.g)) for name in UNARY},
    **{name: (lambda w, name=name: getattr(tk.warp, name)(w.f, w.f, w.g)) for name in BINARY},
    **{
        f"{name}_{axis}": (lambda w, f=f"{name}_{axis}", v=v: getattr(tk.warp, f)(w.f, w.f, getattr(w, v)))
        for name in ("add", "sub", "mul", "div", "max", "min")
        for axis, v in (("row", "rows"), ("col", "cols"))
    },
    **{
        f"{axis}_{name}": (lambda w, f=f"{axis}_{name}", v=v: getattr(tk.warp, f)(getattr(w, v), w.f))
        for name in ("max", "min", "sum", "prod")
        for axis, v in (("row", "rows"), ("col", "cols"))
    },
    **{f"{n}_fill": (lambda w, f=f"{n}_fill": getattr(tk.warp, f)(w.f, w.f, 3, 0.0)) for n in ("left", "right", "upper", "lower")},
    **{f"vec_{n}": (lambda w, f=f"vec_{n}": getattr(tk.warp, f)(w.naive)) for n in ("max", "min", "sum", "prod")},
    "fill": lambda w: (tk.warp.fill(w.f, 2.0), tk.warp.fill(w.narrow, 2.0)),
    "tril": lambda w: tk.warp.tril(w.f, w.f),
    "triu": lambda w: tk.warp.triu(w.f, w.f),
    "make_causal": lambda w: tk.warp.make_causal(w.f, w.f, 0, 0, 0.0),
    "make_causal_t": lambda w: tk.warp.make_causal_t(w.f, w.f, 0, 0, 0.0),
    "apply": lambda w: tk.warp.apply(w.f, w.g, lambda r, c, x: x),
    "fma": lambda w: tk.warp.fma(w.f, w.f, 2.0, w.g),
    "broadcast_row": lambda w: tk.warp.broadcast_row(w.f, w.rows),
    "broadcast_col": lambda w: tk.warp.broadcast_col(w.f, w.cols),
    "copy": lambda w: (
        tk.warp.copy(w.f, w.g),
        tk.warp.copy(w.narrow, w.f),
        tk.warp.copy(w.fp8, w.f),
        tk.warp.copy(w.naive, w.cols),
    ),
    "swap_layout": lambda w: (tk.warp.swap_layout(w.col, w.narrow), tk.warp.swap_layout(w.fcol, w.f)),
    "swap_layout_inplace": lambda w: tk.warp.swap_layout_inplace(w.f),
    "transpose_sep": lambda w: tk.warp.transpose_sep(w.turned, w.narrow),
    "transpose_inplace": lambda w: tk.warp.transpose_inplace(w.square),
    "sync": lambda w: tk.warp.sync(),
    "arrive": lambda w: tk.warp.arrive(w.sem),
    "load": lambda w: both("load")(w, tk.warp),
    "store": lambda w: both("store")(w, tk.warp),
    "load_async": lambda w: tk.warp.load_async(w.s, w.X, (0, 0)),
    "mma_AB": lambda w: tk.warp.mma_AB(w.acc, w.ab, w.bc, w.acc),
    "mma_ABt": lambda w: tk.warp.mma_ABt(w.acc, w.ab, w.ab, w.acc),
    "mma_AtB": lambda w: tk.warp.mma_AtB(w.acc, w.bc, w.bc, w.acc),
    "mma_AtBt": lambda w: tk.warp.mma_AtBt(w.acc, w.bc, w.ab, w.acc),
}
WARPGROUP = {
    **WGMMA,
    "mma_fence": lambda w: tk.warpgroup.mma_fence(),
    "mma_commit_group": lambda w: tk.warpgroup.mma_commit_group(),
    "mma_async_wait": lambda w: tk.warpgroup.mma_async_wait(),
    "load": lambda w: both("load")(w, tk.warpgroup),
    "store": lambda w: both("store")(w, tk.warpgroup),
    "load_async": lambda w: tk.warpgroup.load_async(w.s, w.X, (0, 0)),
    "warpid": lambda w: tk.warpgroup.warpid(),
    "laneid": lambda w: tk.warpgroup.laneid(),
    "sync": lambda w: tk.warpgroup.sync(1),
    "arrive": lambda w: (tk.warpgroup.arrive(w.sem), tk.warpgroup.arrive(tk.barrier(1, 1))),
    "increase_registers": lambda w: tk.warpgroup.increase_registers(240),
    "producer_registers": lambda w: tk.warpgroup.producer_registers(),
    "decrease_registers": lambda w: tk.warpgroup.decrease_registers(40),
    "consumer_registers": lambda w: tk.warpgroup.consumer_registers(1),
}
#: Operations of one thread, traced inside of tk.elect (the things they need outside of it).
THREAD = {
    "tk": {
        "arrive": lambda w: tk.arrive(w.sem),
        "arrive_and_wait": lambda w: tk.arrive_and_wait(w.sem, 0),
        "init_semaphore": lambda w: tk.init_semaphore(w.sem, 1),
        "invalidate_semaphore": lambda w: tk.invalidate_semaphore(w.sem),
    },
    "tk.tma": {
        "expect_bytes": lambda w: tk.tma.expect_bytes(w.sem, 16),
        "expect": lambda w: tk.tma.expect(w.sem, w.s),
        "load_async": lambda w: tk.tma.load_async(w.s, w.X, (0, 0), w.sem),
        "store_async": lambda w: tk.tma.store_async(w.X, w.s, (0, 0)),
        **{
            f"store_{op}_async": (lambda w, f=f"store_{op}_async": getattr(tk.tma, f)(w.X, w.s, (0, 0)))
            for op in ("add", "min", "max")
        },
        "prefetch": lambda w: tk.tma.prefetch(w.s, w.X, (0, 0)),
        "prefetch_map": lambda w: tk.tma.prefetch_map(w.X, w.s),
        "load_bulk_async": lambda w: tk.tma.load_bulk_async(w.flat, w.X, 0, w.sem),
        "store_bulk_async": lambda w: tk.tma.store_bulk_async(w.X, w.flat, 0),
        "store_commit_group": lambda w: tk.tma.store_commit_group(),
        "store_async_wait": lambda w: tk.tma.store_async_wait(),
        "store_async_read_wait": lambda w: tk.tma.store_async_read_wait(),
    },
    "tk.tma.cluster": {
        "load_async": lambda w: tk.tma.cluster.load_async(w.s, w.X, (0, 0), w.sem, 3),
        "store_async": lambda w: tk.tma.cluster.store_async(w.s, w.s2, 1, w.sem),
        "expect": lambda w: tk.tma.cluster.expect(w.sem, w.s, cta=1),
        "expect_bytes": lambda w: tk.tma.cluster.expect_bytes(w.sem, 16, 1),
        "arrive": lambda w: tk.tma.cluster.arrive(w.sem, 1),
        "wait": lambda w: tk.tma.cluster.wait(w.sem, 0),
    },
}
EXAMPLES = {
    "tk.warp": WARP,
    "tk.warpgroup": WARPGROUP,
    **{space: {} for space in ("tk.tma", "tk.tma.cluster")},
    "tk.cluster": {
        "ctarank": lambda w: tk.cluster.ctarank(),
        "ctas": lambda w: tk.cluster.ctas(),
        "clusterIdx": lambda w: tk.cluster.clusterIdx(),
        "arrive": lambda w: tk.cluster.arrive(),
        "wait": lambda w: tk.cluster.wait(),
        "sync": lambda w: tk.cluster.sync(),
    },
    "tk.pdl": {"arrive": lambda w: tk.pdl.arrive(), "wait": lambda w: tk.pdl.wait()},
    "tk.group": {
        **{name: (lambda w, name=name: getattr(tk.group(4), name)(w.s)) for name in FILLS},
        **{name: (lambda w, name=name: getattr(tk.group(4), name)(w.s, w.s2)) for name in UNARY},
        **{name: (lambda w, name=name: getattr(tk.group(4), name)(w.s, w.s, w.s2)) for name in BINARY},
        "load": lambda w: both("load")(w, tk.group(4)),
        "store": lambda w: both("store")(w, tk.group(4)),
        "load_async": lambda w: tk.group(2).load_async(w.s, w.X, (0, 0)),
        "sync": lambda w: tk.group(2).sync(1),
        "arrive": lambda w: (tk.group(4).arrive(w.sem), tk.group(4).arrive(tk.barrier(1, 1))),
        "warpid": lambda w: (tk.group(2).warpid(), tk.group(3).warpid()),
        "laneid": lambda w: (tk.group(2).laneid(), tk.group(3).laneid()),
        "groupid": lambda w: (tk.group(2).groupid(), tk.group(3).groupid()),
    },
    "tk": {
        "atomic_add": lambda w: tk.atomic_add(tk.sv(tk.fl, 16), 0, 1.0),
        "read": lambda w: tk.read(w.X, 0),
        "write": lambda w: tk.write(w.X, 0, 1.0),
        "blockIdx": lambda w: tk.blockIdx(),
        "gridDim": lambda w: tk.gridDim(),
        "laneid": lambda w: tk.laneid(),
        "warpid": lambda w: tk.warpid(),
        "elect": lambda w: body(tk.elect()),
        "warpgroups": lambda w: body(tk.warpgroups(0)),
        "warps": lambda w: body(tk.warps(0)),
        "when": lambda w: body(tk.when(w.n > 0)),
        "otherwise": lambda w: (body(tk.when(w.n > 0)), body(tk.otherwise())),
        "range": lambda w: run(tk.range(w.n)),
        "while_": lambda w: run(tk.while_(lambda: w.n > 0)),
        "break_when": lambda w: [tk.break_when(w.n > 0) for _ in tk.range(3)],
        "continue_when": lambda w: [tk.continue_when(w.n > 0) for _ in tk.range(3)],
        "exp2": lambda w: tk.exp2(w.x),
        "log2": lambda w: tk.log2(w.x),
        "rsqrt": lambda w: tk.rsqrt(w.x),
        "rcp": lambda w: tk.rcp(w.x),
        "to_float": lambda w: tk.to_float(w.n),
        "to_int": lambda w: tk.to_int(w.x),
        "minimum": lambda w: tk.minimum(w.n, 1),
        "maximum": lambda w: tk.maximum(w.x, 1.0),
        "select": lambda w: tk.select(w.n > 0, 1, 2),
        "var": lambda w: tk.var(0),
        "ring": lambda w: tk.ring(2).advance(),
        "phasebits": lambda w: tk.phasebits(),
        "get_phasebit": lambda w: tk.get_phasebit(w.bits, w.n),
        "update_phasebit": lambda w: tk.update_phasebit(w.bits, w.n),
        "ring_advance": lambda w: [tk.ring_advance(i, n) for i in (w.n, tk.warpid()) for n in (3, 4)],
        "ring_retreat": lambda w: [tk.ring_retreat(i, n) for i in (w.n, tk.warpid()) for n in (3, 4)],
        "fence_mbarrier_init": lambda w: tk.fence_mbarrier_init(),
        "fence_proxy_async": lambda w: tk.fence_proxy_async(),
        "wait": lambda w: tk.wait(w.sem, 0),
        "try_wait": lambda w: tk.try_wait(w.sem, 0),
        "test_wait": lambda w: tk.test_wait(w.sem, 0),
        "sync": lambda w: tk.sync(),
        "load_async_wait": lambda w: tk.load_async_wait(),
        "ptx": lambda w: tk.ptx("nanosleep.u32 20"),
    },
}


def emitted(example, in_thread, warps):
    """Return the instructions that an example adds to a kernel, without those that make the things it needs."""
    found = []

    def observe(world):
        before = {id(line) for line in current().lines}
        example(world)
        new = [line for line in current().lines if id(line) not in before | world.lines]
        found.extend(line.text for line in new if not line.is_label)

    def traced(X):
        world = World(X)
        if in_thread:
            for name in ("s", "s2", "sem", "flat"):
                getattr(world, name)
            with tk.elect():
                observe(world)
        else:
            observe(world)

    tk.kernel(grid=2, cluster=2, warps=warps, X=tk.gl(tk.bf16, 128, 1024))(traced)
    return found


def opcode(instruction):
    words = instruction.rstrip(";").split()
    return words[1] if words[0].startswith("@") else words[0]


@pytest.mark.parametrize("space, name", OPERATIONS, ids=[f"{space}.{name}" for space, name in OPERATIONS])
def test_an_operation_names_the_instructions_that_it_emits(space, name):
    in_thread = name in THREAD.get(space, {})
    example = THREAD[space][name] if in_thread else EXAMPLES[space][name]
    is_of_group = space == "tk.group" or name == "warpgroups"
    instructions = emitted(example, in_thread, WARPS.get(name, 4) if is_of_group else 4)
    document = inspect.cleandoc(getattr(SPACES[space], name).__doc__)
    claims = re.findall(r"``([^`]+)``", document[document.rindex("PTX:") :])
    if name == "ptx":
        assert instructions == ["nanosleep.u32 20;"]
        return
    for claim in claims:
        is_part = claim[0] in "%."
        assert any(claim in i if is_part else opcode(i).startswith(claim) for i in instructions), (claim, instructions[:20])
    for instruction in instructions:
        is_plain = opcode(instruction).startswith("ld.param") or opcode(instruction).split(".")[0] in PLAIN
        assert is_plain or any(opcode(instruction).startswith(claim) for claim in claims), (opcode(instruction), claims)


def test_every_operation_has_an_example_and_nothing_else_has():
    known = {(space, name) for space, examples in EXAMPLES.items() for name in examples}
    known |= {(space, name) for space, examples in THREAD.items() for name in examples}
    assert known == set(OPERATIONS)
