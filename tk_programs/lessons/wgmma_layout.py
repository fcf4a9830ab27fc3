"""Lesson 3: which thread holds what of a product, and where a swizzled tile keeps its elements."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from h100sim import tk
from h100sim.layouts import fragment, pictures
from h100sim.layouts.banks import wavefronts
from tk_programs.lessons.tables import table

N = 64
OPCODE = f"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16"
#: The element that the question asks for.
ROW, COL = 37, 21


def build() -> tk.Kernel:
    """Return the kernel: D = A B in the registers of one warpgroup, and a tile X that TMA swizzles into shared memory."""
    tile = tk.gl(tk.bf16, 64, 64)

    @tk.kernel(grid=1, warpgroups=1, A=tile, B=tile, X=tile, D=tk.gl(tk.fl, 64, N))
    def who_holds_what(A, B, X, D):
        a, b, x = (tk.st(tk.bf16, 64, 64, name=name) for name in "abx")
        arrived = tk.semaphore()
        with tk.elect():
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
            tk.tma.expect(arrived, a, b, x)
            for st, gl in ((a, A), (b, B), (x, X)):
                tk.tma.load_async(st, gl, (0, 0), arrived)
        tk.sync()
        tk.wait(arrived, 0)
        d = tk.rt(tk.fl, 16, N)
        tk.warpgroup.mm_AB(d, a, b)
        tk.warpgroup.mma_async_wait()
        tk.warpgroup.store(D, d, (0, 0))

    return who_holds_what


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A and B whose product is 64 row + column, exactly, and X whose element is its own number, as bits."""
    import ml_dtypes

    a, b = np.zeros((64, 64), np.float32), np.zeros((64, N), np.float32)
    a[:, 0], a[:, 1] = np.arange(64), 1
    b[0], b[1] = 64, np.arange(N)
    x = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    return a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16), x.view(ml_dtypes.bfloat16)


def element_of(warp: int, lane: int, register: int) -> tuple[int, int]:
    """Return (row, column) of an accumulator register: the rule that this lesson is about."""
    row = 16 * warp + 8 * (register // 2 % 2) + lane // 4
    return row, 8 * (register // 4) + 2 * (lane % 4) + register % 2


def address_of(row: int, col: int) -> int:
    """Return the byte of a 64-column bf16 tile with a 128-byte swizzle where element (row, col) lies."""
    chunk, inside = divmod(2 * col, 16)
    return 128 * row + 16 * (chunk ^ row % 8) + inside


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Run the kernel to just after the product; compare every register and every byte of X with the rules."""
    kernel = build()
    warps, x = _stopped(kernel)
    rule = np.array([[[element_of(w, lane, r) for lane in range(32)] for r in range(N // 2)] for w in range(4)])
    held = np.stack(np.divmod(warps, 64), -1)
    addresses = np.array([[address_of(r, c) for c in range(64)] for r in range(64)])
    found = x.view(np.uint16)[addresses // 2]
    owner = fragment(OPCODE, "d")[ROW, COL]
    eight_rows = [address_of(r, COL) // 16 * 16 for r in range(8)]
    plain = [128 * r + 2 * COL // 16 * 16 for r in range(8)]
    figures = {
        "registers_checked": int(held.shape[0] * held.shape[1] * held.shape[2]),
        "registers_as_the_rule_says": int((held == rule).all(-1).sum()),
        "bytes_checked": int(2 * found.size),
        "bytes_as_the_rule_says": int(2 * (found.ravel() == np.arange(found.size)).sum()),
        "warp": int(owner["warp"]),
        "lane": int(owner["lane"]),
        "register": int(owner["register"]),
        "address": address_of(ROW, COL),
        "swizzled_wavefronts": wavefronts(eight_rows, 16, "matrix")[0],
        "plain_wavefronts": wavefronts(plain, 16, "matrix")[0],
        "pictures": [],
    }
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = {
            "accumulator.svg": pictures.draw_fragment(OPCODE, "d"),
            "swizzle_128B.svg": pictures.draw_swizzle(64, 64, 2, "128B"),
            "banks_swizzled.svg": pictures.draw_banks(eight_rows, 16, "matrix"),
            "banks_plain.svg": pictures.draw_banks(plain, 16, "matrix"),
        }
        for name, svg in drawn.items():
            (folder / name).write_text(svg)
        figures["pictures"] = [str(folder / name) for name in drawn]
    return figures


def _stopped(kernel: tk.Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Return the accumulator of every warp as integers (4, N / 2, 32), and the bytes of X in shared memory, when the
    product has ended.
    """
    from h100sim.host import Device

    gpu = Device()
    arrays = zip(kernel.arrays(*inputs()), kernel.arguments, strict=True)
    buffers = [gpu.asarray(array, name=a.name) for array, a in arrays]
    arguments = kernel.launch_args(*buffers, address_of=lambda buffer: buffer.address)
    debugger = kernel.function().debug(kernel.grid, kernel.block, arguments, shared_mem=kernel.shared_bytes, device=gpu)
    lines = kernel.ptx.splitlines()
    debugger.run_to(line=next(n for n, text in enumerate(lines, 1) if text.strip().startswith("st.global")))
    (names,) = (r["registers"] for r in kernel.debug.registers if r["name"] == "d")
    held = [debugger.registers(warp) for warp in range(4)]
    words = np.array([[registers[name] for name in names] for registers in held])
    offset = next(t["offset"] for t in kernel.debug.tiles if t["name"] == "x")
    floats = words.astype(np.uint32).view(np.float32) if words.dtype.kind in "ui" else words
    return floats.astype(np.int64), np.asarray(debugger.shared(0))[offset : offset + 64 * 64 * 2].copy()


def report(figures: dict[str, Any]) -> str:
    """Show the first lanes of warp 0, the top left corner of shared memory, and what was checked."""
    lanes = (0, 1, 2, 3, 4, 5, 31)
    rows = [
        (f"lane {l}", *("D[{}][{}]".format(*element_of(0, l, r)) for r in (0, 1, 2, 3, 4, 5)))
        for l in lanes  # noqa: E741
    ]
    owners = table(("warp 0", *(f"register {r}" for r in range(6))), rows)
    places = [(f"line {r}", *(f"{r}, {8 * (chunk ^ r % 8)}" for chunk in range(8))) for r in range(9)]
    shared = table(("128 bytes", *(f"chunk {c}" for c in range(8))), places)
    checked = table(
        ("what", "checked", "as the rule says"),
        [
            ("registers of D, all lanes", figures["registers_checked"], figures["registers_as_the_rule_says"]),
            ("bytes of X in shared memory", figures["bytes_checked"], figures["bytes_as_the_rule_says"]),
        ],
    )
    parts = [f"Who holds what of D ({OPCODE}):", owners]
    parts += ["Where a 64-column bf16 tile lies with the 128-byte swizzle (a cell names row, first of 8 columns):", shared]
    parts += ["The kernel was stopped after the product, and its registers and bytes compared with both rules:", checked]
    parts += ["Pictures: " + ", ".join(figures["pictures"])] if figures["pictures"] else []
    return "\n\n".join(parts)


def answer(figures: dict[str, Any]) -> str:
    """Name the thread and the byte."""
    return (
        f"D[{ROW}][{COL}] is in register {figures['register']} of lane {figures['lane']} of warp {figures['warp']}; element "
        f"({ROW}, {COL}) of the swizzled tile is at byte {figures['address']:#x}. A column chunk of eight rows, which is what "
        f"`ldmatrix` and the tensor core read at once, takes {figures['swizzled_wavefronts']} wavefront with the swizzle and "
        f"{figures['plain_wavefronts']} without."
    )


if __name__ == "__main__":
    from tk_programs.lessons import teach

    teach("wgmma_layout")
