"""Long convolutions by Monarch FFT: a transform of 4096 points as matrix products with a 64 x 64 matrix, on the tensor core.

A sequence of 4096 is a matrix X of 64 x 64. With F the Fourier matrix of 64 points and T[i][j] = exp(-2 pi i ij / 4096), its
transform is (T * (F X)) F, where * is element by element and frequency i + 64 j stands in row i, column j. Multiplied by the
transform of the filter and taken back the same way with conjugates, that is a circular convolution; pad with zeros for a
causal one. Complex products are four real ones; -Im F has a tile of its own, because wgmma adds but does not subtract.

A CTA serves one head: Fourier matrix, twiddles and the head's filter stay in shared memory while its two warpgroups, each by
itself, walk over the batch.
"""

# mypy: disable-error-code="valid-type"

import ml_dtypes
import numpy as np

from h100sim import tk
from h100sim.errors import UsageError

TEACHES = "Monarch FFT convolution: complex products with a Fourier matrix, operands from registers, two loops side by side"
CONFIG = {"batch": 3, "heads": 2}

N, LENGTH = 64, 4096
CONSUMERS, STAGES = 2, 2


def build(batch: int = 3, heads: int = 2) -> tk.Kernel:
    """Return the kernel for X and Y of batch x heads x 64 x 64 in bf16, with tables as ``inputs`` gives them.

    Raises UsageError for sizes below 1.
    """
    for name, size in (("batch", batch), ("heads", heads)):
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")
    shape, spectrum = tk.gl(tk.bf16, batch, heads, N, N), tk.gl(tk.fl, heads, N, N)
    fourier, twiddle = tk.gl(tk.bf16, 3, N, N), tk.gl(tk.fl, 2, N, N)

    @tk.kernel(grid=heads, warpgroups=CONSUMERS)
    def fft_convolution(X: shape, F: fourier, T: twiddle, K_re: spectrum, K_im: spectrum, Y: shape):
        f = tk.st(tk.bf16, N, N, count=3)
        f_re, f_im, minus_f_im = f[0], f[1], f[2]
        t, k = tk.st(tk.fl, N, N, count=2), tk.st(tk.fl, N, N, count=2)
        x = tk.st(tk.bf16, N, N, count=(CONSUMERS, STAGES))
        u, y = tk.st(tk.bf16, N, N, count=(CONSUMERS, 2)), tk.st(tk.bf16, N, N, count=CONSUMERS)
        tables, arrived = tk.semaphore(), tk.semaphores(CONSUMERS * STAGES)
        head = tk.blockIdx()
        with tk.elect():
            tk.init_semaphore(tables, 1)
            tk.init_semaphore(arrived, 1)
            tk.fence_mbarrier_init()
            tk.tma.expect(tables, f, t, k)
            for i in range(3):
                tk.tma.load_async(f[i], F, (i, 0, 0), tables)
            for i in range(2):
                tk.tma.load_async(t[i], T, (i, 0, 0), tables)
                tk.tma.load_async(k[i], (K_re, K_im)[i], (head, 0, 0), tables)
        tk.sync()

        with tk.warpgroups(*range(CONSUMERS), name="consumer") as consumer:
            re, im = tk.rt(tk.fl, 16, N), tk.rt(tk.fl, 16, N)
            table_re, table_im, product = (tk.rt(tk.fl, 16, N, name=s) for s in ("table_re", "table_im", "product"))
            re_bf, im_bf = tk.rt(tk.bf16, 16, N), tk.rt(tk.bf16, 16, N)

            def fetch(item, stage):
                """Start to copy the sequence of an item of the batch."""
                slot = arrived[consumer * STAGES + stage]
                tk.tma.expect_bytes(slot, y[0].size_bytes)
                tk.tma.load_async(x[consumer, stage], X, (item, head, 0, 0), slot)

            def times(table, conjugate):
                """Multiply (re, im) by a table, element by element."""
                plus, minus = (tk.warp.sub, tk.warp.add) if conjugate else (tk.warp.add, tk.warp.sub)
                tk.warpgroup.load(table_re, table[0])
                tk.warpgroup.load(table_im, table[1])
                tk.warp.mul(product, re, table_im)
                tk.warp.mul(re, re, table_re)
                tk.warp.mul(table_im, im, table_im)
                minus(re, re, table_im)
                tk.warp.mul(im, im, table_re)
                plus(im, im, product)

            def times_fourier(conjugate):
                """Multiply (re, im) by F from the right: a matrix product with the operands in registers."""
                tk.warp.copy(re_bf, re)
                tk.warp.copy(im_bf, im)
                cross, other = (f_im, minus_f_im) if conjugate else (minus_f_im, f_im)
                tk.warpgroup.mm_AB(re, re_bf, f_re)
                tk.warpgroup.mma_AB(re, im_bf, cross)
                tk.warpgroup.mm_AB(im, im_bf, f_re)
                tk.warpgroup.mma_AB(im, re_bf, other)
                tk.warpgroup.mma_async_wait()

            with tk.elect():
                for stage in range(STAGES):
                    with tk.when(consumer + stage * CONSUMERS < batch):  # type: ignore[arg-type]
                        fetch(consumer + stage * CONSUMERS, stage)
            tk.wait(tables, 0)
            ring = tk.ring(STAGES)
            for item in tk.range(consumer, batch, CONSUMERS):
                tk.wait(arrived[consumer * STAGES + ring.stage], ring.phase)
                tk.warpgroup.mm_AB(re, f_re, x[consumer, ring.stage])
                tk.warpgroup.mm_AB(im, f_im, x[consumer, ring.stage])
                tk.warpgroup.mma_async_wait()
                with tk.elect(), tk.when(item + STAGES * CONSUMERS < batch):
                    fetch(item + STAGES * CONSUMERS, ring.stage)
                times(t, conjugate=False)
                times_fourier(conjugate=False)
                times(k, conjugate=False)
                times_fourier(conjugate=True)
                times(t, conjugate=True)
                # conj(F) from the left needs the other operand in shared memory; only the real part is wanted.
                tk.warpgroup.store(u[consumer, 0], re)
                tk.warpgroup.store(u[consumer, 1], im)
                tk.warpgroup.sync(consumer + 1)
                tk.warpgroup.mm_AB(re, f_re, u[consumer, 0])
                tk.warpgroup.mma_AB(re, f_im, u[consumer, 1])
                with tk.elect():
                    tk.tma.store_async_read_wait()
                tk.warpgroup.mma_async_wait()
                tk.warpgroup.sync(consumer + 1)
                tk.warpgroup.store(y[consumer], re)
                tk.warpgroup.sync(consumer + 1)
                with tk.elect():
                    tk.tma.store_async(Y, y[consumer], (item, head, 0, 0))
                ring.advance()
            with tk.elect():
                tk.tma.store_async_wait()

    return fft_convolution


def spectrum_of(filters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return real and imaginary part of the transforms of filters (heads x 4096) over 4096, frequency i + 64 j at [i][j]."""
    transformed = np.fft.fft(filters.astype(np.float64)) / LENGTH
    placed = np.swapaxes(transformed.reshape(-1, N, N), 1, 2)
    return placed.real.astype(np.float32), placed.imag.astype(np.float32)


def inputs(seed: int = 0, batch: int = 3, heads: int = 2, **_config) -> tuple[np.ndarray, ...]:
    """Return random X in bf16, F (Re, Im, -Im) in bf16, T (Re, Im) in f32, and the spectra of decaying random filters."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, heads, N, N), np.float32).astype(ml_dtypes.bfloat16)
    filters = rng.standard_normal((heads, LENGTH)) * np.exp(-np.arange(LENGTH) / 200)
    products = np.outer(np.arange(N), np.arange(N))
    f, t = np.exp(-2j * np.pi * products / N), np.exp(-2j * np.pi * products / LENGTH)
    fourier = np.stack([f.real, f.imag, -f.imag]).astype(np.float32).astype(ml_dtypes.bfloat16)
    return x, fourier, np.stack([t.real, t.imag]).astype(np.float32), *spectrum_of(filters)


def reference(
    x: np.ndarray, fourier: np.ndarray, twiddle: np.ndarray, k_re: np.ndarray, k_im: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the circular convolution in float64 and the error to allow: half a unit of a bf16 result, and for the seven
    other roundings to bf16, which the transforms spread over a sequence, 2^-5 of the root mean square of its result.
    """
    spectrum = np.swapaxes(k_re.astype(np.float64) + 1j * k_im, 1, 2).reshape(-1, LENGTH) * LENGTH
    sequences = x.astype(np.float64).reshape(*x.shape[:2], LENGTH)
    exact = np.fft.ifft(np.fft.fft(sequences) * spectrum).real.reshape(x.shape)
    size = np.sqrt((exact**2).mean((-1, -2), keepdims=True))
    return exact, 2.0**-8 * np.abs(exact) + 2.0**-5 * size
