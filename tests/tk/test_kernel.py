"""What a trace gives beside instructions: names, tensor maps, arguments, source lines; and what it refuses."""

import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

import tk_programs
from h100sim import tk
from h100sim.errors import UsageError
from h100sim.ptx import parse


def line_of(text):
    """Return the number of the only line of this file that contains ``text`` (split here, so that it is not this
    one).
    """
    with open(__file__) as source:
        (line,) = (n for n, content in enumerate(source, 1) if text in content)
    return line


def traced(body, warps=4, **layouts):
    """Trace ``body(**tensors)`` and return the kernel."""
    if not layouts:
        return tk.kernel(grid=1, warps=warps)(lambda: body())
    layouts.setdefault("X", tk.gl(tk.bf16, 128, 128))
    return tk.kernel(grid=1, warps=warps, **layouts)(lambda X: body(X))


# --- names and maps ---------------------------------------------------------------------------------------------------


def test_tiles_are_named_after_their_variables():
    @tk.kernel(grid=1, warpgroups=1)
    def names(X: tk.gl(tk.bf16, 64, 64)):
        first, second = tk.st(tk.bf16, 64, 64), tk.st(tk.fl, 64, 32, count=(2, 3))
        tk.st(tk.half, 16, 16)
        bias = tk.sv(tk.fl, 48, count=2)
        done = tk.semaphore(name="finished")
        slots = [tk.rt(tk.fl, 16, 64), tk.rt(tk.fl, 16, 64, name="spare")]
        tk.warp.zero(slots[0])
        total = tk.col_vec(slots[0])
        tk.warp.row_sum(total, slots[0])
        assert first is not second and bias is not done

    tiles, registers = names.debug.tiles, names.debug.registers
    assert [t["name"] for t in tiles] == ["first", "second", "st", "bias"]
    assert [t["offset"] - 0x400 for t in tiles] == [0, 8192, 8192 + 6 * 8192, 8192 + 6 * 8192 + 512]
    assert [t["swizzle"] for t in tiles] == [128, 128, 32, 0]
    assert [s["name"] for s in names.debug.semaphores] == ["finished"]
    assert [r["name"] for r in registers] == ["rt", "spare", "total"]
    assert registers[0]["registers"][:2] == ("%rt_0", "%rt_1")
    assert names.shared_bytes == 8192 + 6 * 8192 + 512 + 2 * 256 + 8


def test_a_name_is_found_though_nothing_asks_for_it_during_the_trace():
    """The README's program: its variables are gone when the debug information is made."""

    @tk.kernel(grid=1, warps=1)
    def copy(X: tk.gl(tk.fl, 64, 64)):
        tile, arrived = tk.st(tk.fl, 64, 64), tk.semaphore()
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.tma.expect_bytes(arrived, tile.size_bytes)
            tk.tma.load_async(tile, X, (0, 0), arrived)

    assert [t["name"] for t in copy.debug.tiles] == ["tile"]
    assert [s["name"] for s in copy.debug.semaphores] == ["arrived"]


def test_one_tensor_gets_a_map_for_each_tile_shape_and_a_pointer():
    @tk.kernel(grid=1, warpgroups=1)
    def maps(X: tk.gl(tk.bf16, 2, 3, 64, 128), Y: tk.gl(tk.bf16, 64, 128)):
        wide, narrow, flat = tk.st(tk.bf16, 64, 128), tk.st(tk.bf16, 16, 32), tk.st(tk.bf16, 16, 64, swizzle=0)
        arrived, values = tk.semaphore(), tk.rt(tk.bf16, 16, 128)
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            for tile in (wide, narrow, flat, wide):
                tk.tma.load_async(tile, X, (1, 2, 0, 0), arrived)
        tk.warpgroup.store(Y, values, (0, 0))

    assert [p.name for p in maps.parameters] == ["X_map_64x128", "X_map_16x32_64B", "X_map_16x64_row_major", "Y_ptr"]
    wide, narrow, flat = (p.map for p in maps.parameters[:3])
    assert (wide.dims, wide.box) == ((64, 64, 2, 3, 2), (64, 64, 2, 1, 1))
    assert wide.strides == (256, 128, 64 * 256, 3 * 64 * 256)
    assert (narrow.dims, narrow.box, narrow.swizzle) == ((32, 64, 4, 3, 2), (32, 16, 1, 1, 1), "64B")
    assert (flat.dims, flat.box, flat.swizzle) == ((128, 64, 3, 2), (64, 16, 1, 1), "none")
    assert [(a.name, a.is_input, a.is_output) for a in maps.arguments] == [("X", True, False), ("Y", False, True)]


def test_launch_arguments_are_maps_and_buffers_in_the_order_of_the_parameters():
    kernel = tk_programs.gemm.build()
    addresses = {"a": 0x7F0000000000, "b": 0x7F0000100000, "c": 0x7F0000200000}
    a, b, c = kernel.launch_args("a", "b", "c", address_of=addresses.get)
    assert [m.address for m in (a, b, c)] == list(addresses.values())
    assert [len(bytes(m)) for m in (a, b, c)] == [128] * 3
    with pytest.raises(UsageError, match=r"^kernel gemm must be given 3 buffers, not 1$"):
        kernel.launch_args("a", address_of=addresses.get)


def test_outputs_begin_as_nan_and_inputs_are_checked():
    kernel = tk_programs.gemm.build()
    inputs = tk_programs.gemm.inputs()
    arrays = kernel.arrays(*inputs)
    assert np.isnan(arrays[2].astype(np.float32)).all()
    assert arrays[0].dtype == ml_dtypes.bfloat16 and not np.shares_memory(arrays[0], inputs[0])
    assert kernel.arrays(inputs[0].view(np.uint16), inputs[1])[0].dtype == np.uint16
    with pytest.raises(UsageError, match=r"^input A must be bfloat16 \(256, 256\), not float64 \(256, 256\)$"):
        kernel.arrays(np.zeros((256, 256)), inputs[1])
    with pytest.raises(UsageError, match=r"^kernel gemm must be given 2 inputs \(A, B\), not 1$"):
        kernel.arrays(inputs[0])
    with pytest.raises(UsageError, match=r"^on must be sim or gpu, not 'tpu'$"):
        kernel.run(*inputs, on="tpu")


def test_layouts_can_be_keywords():
    @tk.kernel(grid=(2, 3), warps=1, X=tk.gl(tk.fl, 16, 16))
    def keyword(X):
        tk.warp.store(X, tk.rt(tk.fl, 16, 16), (0, 0))

    assert keyword.grid == (2, 3, 1) and keyword.block == (32, 1, 1)
    assert [p.name for p in keyword.parameters] == ["X_ptr"]


# --- text -------------------------------------------------------------------------------------------------------------


def test_the_source_map_agrees_with_loc_and_names_python_lines():
    kernel = tk_programs.gemm.build()
    function = parse(kernel.ptx).functions["gemm"]
    for instruction in function.instructions:
        assert kernel.source_map[instruction.line] == (tk_programs.gemm.__file__, instruction.source[1])
    with open(tk_programs.gemm.__file__) as source:
        lines = source.read().splitlines()
    (wgmma, *_) = (i for i in function.instructions if i.base == "wgmma")
    assert "tk.warpgroup.mma_AB(" in lines[wgmma.source[1] - 1]
    assert f"// {lines[wgmma.source[1] - 1].strip()}" in kernel.ptx


def test_tracing_twice_gives_the_same_text():
    assert tk_programs.gemm.build().ptx == tk_programs.gemm.build().ptx


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("config", [{}, {"bn": 256, "n": 512}, {"bm": 192, "m": 192, "bn": 192, "n": 192}], ids=str)
def test_ptxas_takes_the_gemm_without_spills_or_serialised_wgmma(config, tmp_path):
    path = tmp_path / "gemm.ptx"
    path.write_text(tk_programs.gemm.build(**config).ptx)
    command = ["ptxas", "-arch=sm_90a", "-v", str(path), "-o", str(tmp_path / "gemm.cubin")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in report
    assert "C75" not in report and "arning" not in report


# --- what is refused --------------------------------------------------------------------------------------------------


def shapes(d, a, b, call="mma_AB"):
    """Return a body that multiplies register or shared tiles of the given (kind, type, rows, cols)."""

    def body():
        make = {"st": tk.st, "rt": tk.rt}
        with tk.warpgroups(0):
            getattr(tk.warpgroup, call)(*(make[kind](*shape) for kind, *shape in (d, a, b)))

    return body


def thread(body):
    """Return a body that runs in one thread."""

    def wrapped(*tensors):
        with tk.elect():
            body(*tensors)

    return wrapped


def used_by_a_thread():
    tile = tk.rt(tk.fl, 16, 16)
    with tk.elect():
        tk.warp.zero(tile)


def when_lane(body):
    """Return a body that only the first half of each warp executes."""

    def wrapped():
        with tk.when(tk.laneid() // 16 == 0):
            body()

    return wrapped


RT, ST = ("rt", tk.fl, 16, 64), ("st", tk.bf16, 64, 64)
REFUSED = [
    # tiles
    (lambda: tk.st(tk.bf16, 60, 64), "rows of an st of bf16 must be a multiple of 16, not 60"),
    (lambda: tk.rt(tk.fp8e4m3, 16, 48), "cols of an rt of e4m3 must be a multiple of 32, not 48"),
    (lambda: tk.st("bf16", 64, 64), "element type must be one of bf16, f16, f32, e4m3, e5m2, not bf16"),
    (lambda: tk.st(tk.bf16, 64, 32, swizzle=128),
     "row of 32 bf16 must be a multiple of the swizzle's 128 bytes, not 64"),
    (lambda: tk.st(tk.bf16, 64, 32, swizzle=96), "swizzle must be 128, 64, 32 or 0 bytes, not 96"),
    (lambda: tk.st(tk.bf16, 64, 64, count=0), "count of shared tiles must be positive integers, not (0,)"),
    (lambda: tk.st(tk.bf16, 64, 64, count=29),
     "shared memory of a CTA must be at most 232,448 bytes, not 237,568 with 29 st<bf16, 64, 64>"),
    (lambda: tk.st(tk.bf16, 64, 64, count=2, name="a")[2], "index of a must be from 0 to 1, not 2"),
    (lambda: tk.st(tk.bf16, 64, 64, name="a")[0],
     "tile a must be indexed by at most its array dimensions; st<bf16, 64, 64> is a single tile"),
    (lambda: tk.st(tk.bf16, 64, 128).panels(32, 64),
     "columns of a slice of st<bf16, 64, 128> must be whole panels of 64, not 32 to 96"),
    (lambda: tk.rt(tk.fl, 16, 64).columns(8, 16),
     "columns of a slice of rt<f32, 16, 64> must be multiples of 16 within it, not 8 to 24"),
    (lambda: tk.sv(tk.fl, 24), "length of an sv must be a multiple of 16, not 24"),
    # semaphores and scopes
    (lambda: tk.init_semaphore(tk.semaphore(), 1),
     "init_semaphore must be executed by one thread, not all warps of the CTA"),
    (thread(lambda: tk.init_semaphore(tk.semaphore(), 0)),
     "arrivals of a semaphore must be from 1 to 1,048,575, not 0"),
    (thread(lambda: tk.arrive(tk.semaphores(4, name="full"))), "arrive must be given one semaphore, not the 4 of full"),
    (lambda: tk.wait(tk.semaphore(), 2), "phase of a wait must be 0 or 1, not 2"),
    (lambda: tk.wait(3, 0), "wait must be given a semaphore, not int"),
    (lambda: tk.semaphore(name="s")[0], "semaphore s must not be indexed: it is not an array"),
    (thread(lambda: tk.sync()), "tk.sync must be executed by all warps of the CTA, not one thread"),
    (thread(lambda: tk.warpgroup.mma_async_wait()),
     "warpgroup.mma_async_wait must be executed by whole warpgroups, not one thread"),
    (when_lane(lambda: tk.warp.sync()),
     "warp.sync must be executed by all warps of the CTA or whole warpgroups or one warp, not some lanes of a warp"),
    (lambda: list(tk.range(tk.laneid())),
     "tk.range bounds must be equal in all lanes of a warp, not differ between them"),
    (lambda: tk.warpgroup.sync(16), "named barrier must be from 1 to 15, not 16"),
    (lambda: tk.barrier(1, 2), "warpgroups of a named barrier must be from 1 to the CTA's 1, not 2"),
    (lambda: tk.warpgroup.increase_registers(100),
     "registers per thread must be a multiple of 8 from 24 to 256, not 100"),
    # products
    (shapes(RT, ST, ("st", tk.bf16, 32, 64)), "warpgroup.mma_AB B must have the 64 of A along K, not 32"),
    (shapes(RT, ("st", tk.bf16, 128, 64), ST),
     "warpgroup.mma_AB A must have 64 rows of D, not 128: give each warpgroup a tile of its own"),
    (shapes(RT, ("rt", tk.bf16, 64, 64), ST),
     "warpgroup.mma_AB D must be rt<f32, 64, 64> (a quarter of the 256 rows in each warp), not rt<f32, 16, 64>"),
    (shapes(("rt", tk.fl, 64, 64), ST, ST),
     "warpgroup.mma_AB D must be rt<f32, 16, 64> (a quarter of the 64 rows in each warp), not rt<f32, 64, 64>"),
    (shapes(("rt", tk.fl, 16, 512), ST, ("st", tk.bf16, 64, 512)), "warpgroup.mma_AB N must be at most 256, not 512"),
    (shapes(RT, ST, ("st", tk.half, 64, 64)),
     "warpgroup.mma_AB A and B must be both bf16, both f16, or both fp8, not bf16 and f16"),
    (shapes(("rt", tk.half, 16, 64), ST, ST),
     "warpgroup.mma_AB D must be f32, or f16 for operands of f16 or fp8, not f16"),
    (shapes(RT, ("rt", tk.bf16, 16, 64), ST, "mma_AtB"),
     "warpgroup.mma_AtB A must be in shared memory, not in registers: only shared operands can be transposed"),
    (shapes(RT, ("st", tk.fp8e4m3, 64, 64), ("st", tk.fp8e4m3, 64, 64)),
     "mma operand of e4m3 must be K-major (mma_ABt), not a tile whose rows run along K"),
    # who has registers, and who set up semaphores
    (thread(lambda: tk.rt(tk.fl, 16, 16)),
     "tk.rt must be executed by all warps of the CTA or whole warpgroups or one warp, not one thread"),
    (used_by_a_thread,
     "registers of tile must be used by whole warps, not one thread: leave the tk.elect or tk.when block first"),
    (thread(lambda: tk.arrive(tk.semaphore(name="full"))),
     "semaphore full of arrive must be set up by tk.init_semaphore, which nobody calls for it"),
    (lambda: tk.wait(tk.semaphores(2, name="full")[1], 0),
     "semaphore full of wait must be set up by tk.init_semaphore, which nobody calls for it"),
    (thread(lambda: tk.init_semaphore("full", 1)), "init_semaphore must be given a semaphore, not str"),
    # maps
    (lambda: tk.warp.add(tk.rt(tk.fp8e4m3, 16, 32), tk.rt(tk.fp8e4m3, 16, 32), 1.0),
     "warp.add operand must be f32, bf16 or f16, not e4m3: copy it to an f32 tile first"),
    (lambda: tk.warp.row_sum(tk.rv(tk.fl, 16, "ortho"), tk.rt(tk.bf16, 16, 16)),
     "warp.row_sum operand must be f32, not bf16: copy it to an f32 tile first"),
    (lambda: tk.warp.exp(tk.rt(tk.fl, 16, 16), tk.rt(tk.fl, 16, 32)),
     "warp.exp operands must have one shape, not rt<f32, 16, 16> and rt<f32, 16, 32>"),
    (lambda: tk.warp.row_max(tk.row_vec(tk.rt(tk.fl, 16, 32)), tk.rt(tk.fl, 16, 32)),
     "warp.row_max vector must be the col_vec of rt<f32, 16, 32>, rv<f32, 16, ortho>, not rv<f32, 32, align>"),
    (lambda: tk.warp.mul(tk.rt(tk.fl, 16, 16), tk.rt(tk.fl, 16, 16), "2"),
     "scalar operand must be a Python number or a tk.Float, not str"),
    (lambda: tk.warpgroup.store(tk.st(tk.bf16, 64, 32), tk.rt(tk.fl, 16, 64)),
     "warpgroup.store shared tile must be 64x64 (4 warps with rt<f32, 16, 64>), not 64x32"),
]  # fmt: skip


@pytest.mark.parametrize("body, message", REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_what_is_wrong_is_refused_with_its_rule(body, message):
    with pytest.raises(UsageError) as error:
        traced(body)
    assert error.value.message == message
    assert error.value.where.source.startswith("test_kernel.py:")


REFUSED_COPIES = [
    ((128, 128), (64, 64), tk.bf16, (2, 0),
     "row coordinate of X (gl<bf16, 128, 128>) must be from 0 to 1 (it counts tiles), not 2"),
    ((128, 96), (64, 64), tk.bf16, (0, 0),
     "columns of X (gl<bf16, 128, 96>) must be a multiple of 64, the tile's swizzle width, not 96"),
    ((128, 68), (64, 32), tk.bf16, (0, 0),
     "row of X (gl<bf16, 128, 68>) must be a multiple of 16 bytes for TMA, not 136"),
    ((128, 128), (64, 64), tk.half, (0, 0), "element type of the tile must be that of X (gl<bf16, 128, 128>), not f16"),
    ((512, 64), (272, 64), tk.bf16, (0, 0), "rows of a tile that TMA copies must be at most 256, not 272: copy two subtiles"),
    ((128, 128), (64, 64), tk.bf16, (0,) * 5,
     "coordinates of X (gl<bf16, 128, 128>) must be one to four integers, not (0, 0, 0, 0, 0)"),
    ((128, 128), (64, 64), tk.bf16, (0, 1.5), "coordinate must be an int or a tk integer, not float"),
]  # fmt: skip


@pytest.mark.parametrize("tensor, tile, dtype, coord, message", REFUSED_COPIES)
def test_copies_that_tma_cannot_do_are_refused(tensor, tile, dtype, coord, message):
    def body(X):
        with tk.elect():
            tk.tma.load_async(tk.st(dtype, *tile), X, coord, tk.semaphore())

    with pytest.raises(UsageError) as error:
        traced(body, X=tk.gl(tk.bf16, *tensor))
    assert error.value.message == message


def test_a_loop_left_early_is_refused():
    def body():
        for _ in tk.range(4):
            tk.warp.sync()
            break
        tk.sync()

    with pytest.raises(UsageError) as error:
        traced(body)
    assert error.value.message == "tk.range loop must be traced to its end, not left with break, continue or return"
    assert error.value.where.source == f"test_kernel.py:{line_of('for _ in tk.range' + '(4)')}"


def test_too_few_warps_for_a_warpgroup_are_told_what_to_write():
    with pytest.raises(UsageError) as error:
        traced(lambda: tk.warpgroup.sync(1), warps=2)
    assert error.value.message == "warpgroup.sync must be executed by whole warpgroups, not all warps of the CTA"
    assert error.value.rule == "give tk.kernel warpgroups=, or leave the block that narrows the scope"


def test_warps_do_not_use_the_registers_of_others():
    def body():
        with tk.warpgroups(0):
            acc = tk.rt(tk.fl, 16, 64)
            tk.warp.zero(acc)
        with tk.warpgroups(1):
            tk.warp.mul(acc, acc, 2.0)

    with pytest.raises(UsageError) as error:
        traced(body, warps=8)
    assert error.value.message == (
        "registers of acc must be used by the warps that made it (warpgroup 0), not warpgroup 1: other warps see it through a "
        "shared tile"
    )


def test_registers_that_nobody_gives_back_are_refused():
    def body():
        with tk.warpgroups(0):
            tk.warpgroup.decrease_registers(40)
        with tk.warpgroups(1, 2):
            tk.warpgroup.increase_registers(240)

    with pytest.raises(UsageError) as error:
        traced(body, warps=12)
    assert error.value.message == (
        "registers of the 3 warpgroups must sum to at most 504 per thread (168 each at entry), not 40 + 240 + 240 = 520"
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: tk.kernel(grid=1, warps=1)(lambda X: None),
            "parameter X must be annotated with a tk.gl, int or float, not nothing",
        ),
        (lambda: tk.kernel(grid=1)(lambda: None), "kernel must be given either warpgroups or warps"),
        (lambda: tk.kernel(grid=1, warpgroups=9)(lambda: None), "warps of a CTA must be from 1 to 32, not 36"),
        (lambda: tk.kernel(grid=1, warpgroups=1.5)(lambda: None), "warpgroups of a kernel must be an integer, not 1.5"),
        (lambda: tk.kernel(grid=1, warps="y")(lambda: None), "warps of a kernel must be an integer, not 'y'"),
        (
            lambda: tk.kernel(grid=1, warpgroups=1)(lambda: tk.warpgroups((0, 1)).__enter__()),
            "warpgroups must be given as numbers of them, not (0, 1)",
        ),
        (
            lambda: tk.kernel(warps=1)(lambda: None),
            "kernel must be given a grid, as in @tk.kernel(grid=132, warpgroups=3), not none",
        ),
        (
            lambda: tk.kernel(lambda: None),
            "tk.kernel must be called with its settings, as @tk.kernel(grid=..., warpgroups=...), not without",
        ),
        (lambda: tk.kernel(grid=0, warps=1)(lambda: None), "grid must be one to three positive integers, not 0"),
        (lambda: tk.sync(), "tk operation must be inside a function that tk.kernel traces, not outside"),
    ],
)
def test_kernels_need_layouts_and_a_size(call, message):
    with pytest.raises(UsageError) as error:
        call()
    assert error.value.message == message
