"""Random calls of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col: does ``TensorMap`` judge and encode as the driver?

Most fields of a call are legal; some lie on a limit or just beyond it, so that about half of the calls are refused, most
of them by one rule. What is compared is the acceptance and, of accepted calls, all 128 bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from h100sim.errors import TensorMapError
from h100sim.layouts.swizzle import SPANS
from h100sim.tma import TensorMap
from h100sim.tma.encoding import corner_bits
from h100sim.tma.fields import DTYPES, INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES

#: A call: the arguments of TensorMap.tiled or TensorMap.im2col by name.
Call = dict[str, Any]
#: What a judge says of a call: the 128 bytes, or None for an error.
Judge = Callable[[Call], bytes | None]


@dataclass
class Judgement:
    """Calls compared: how many were accepted, and those on which the two differ.

    ``rules`` counts our refusals by what they name; ``sha256`` is the digest of everything that the judge said.
    """

    calls: int = 0
    accepted: int = 0
    differing: list[Call] = field(default_factory=list)
    rules: Counter[str] = field(default_factory=Counter)
    sha256: str = ""

    def __str__(self) -> str:
        verdict = f"{len(self.differing):,} judged or encoded differently" if self.differing else "0 differences"
        return f"{self.calls:,} tensor maps: {self.accepted:,} accepted, {self.calls - self.accepted:,} refused, {verdict}"


def compare(count: int, seed: int, judge: Judge) -> Judgement:
    """Return how ``judge`` (the driver) and :class:`TensorMap` agree on ``count`` random calls."""
    rng = np.random.default_rng(seed)
    found, said = Judgement(), hashlib.sha256()
    for _ in range(count):
        call = random_call(rng)
        expected = judge(call)
        said.update(b"refused" if expected is None else expected)
        try:
            ours = bytes(make_map(call))
        except TensorMapError as error:
            ours = None
            found.rules[error.message.split(" must ")[0]] += 1
        found.calls += 1
        found.accepted += expected is not None
        if ours != expected:
            found.differing.append(call)
    found.sha256 = said.hexdigest()
    return found


def own_judge(call: Call) -> bytes | None:
    """Judge as :class:`TensorMap` does."""
    try:
        return bytes(make_map(call))
    except TensorMapError:
        return None


def make_map(call: Call) -> TensorMap:
    """Return the map of a call. TensorMapError where we refuse it."""
    return TensorMap.im2col(**call) if "lower_corner" in call else TensorMap.tiled(**call)


def driver_judge(driver: Any) -> Judge:
    """Return the driver's judge. ``driver``: the module cuda.bindings.driver."""

    def judge(call: Call) -> bytes | None:
        wide, narrow = driver.cuuint64_t, driver.cuuint32_t
        # The binding passes no pointer for an empty list, and no list of more than five; what counts is the rank.
        extents = ([wide(d) for d in call["dims"][:5]], [wide(s) for s in call["strides"][:4] or [16]])
        options = (
            [narrow(s) for s in call["element_strides"][:5]],
            driver.CUtensorMapInterleave(INTERLEAVES.index(call["interleave"])),
            driver.CUtensorMapSwizzle(SWIZZLES.index(call["swizzle"])),
            driver.CUtensorMapL2promotion(L2_PROMOTIONS.index(call["l2_promotion"])),
            driver.CUtensorMapFloatOOBfill(OOB_FILLS.index(call["oob_fill"])),
        )
        element = driver.CUtensorMapDataType(DTYPES[call["dtype"]].driver_code)
        head = (element, len(call["dims"]), call["address"], *extents)
        if "lower_corner" in call:
            corners = (list(call["lower_corner"][:3]), list(call["upper_corner"][:3]))
            counts = (call["channels_per_pixel"], call["pixels_per_column"])
            status, encoded = driver.cuTensorMapEncodeIm2col(*head, *corners, *counts, *options)
        else:
            status, encoded = driver.cuTensorMapEncodeTiled(*head, [narrow(b) for b in call["box"][:5]], *options)
        if int(status):
            return None
        return np.array([int(word) for word in encoded.opaque], np.uint64).tobytes()

    return judge


def random_call(rng: np.random.Generator) -> Call:
    """Return the arguments of a random call, tiled two times out of three."""
    is_im2col = bool(rng.random() < 1 / 3)
    rank = _mostly(rng, [3, 4, 5] if is_im2col else [1, 2, 3, 4, 5], [1, 2, 6], 0.03)
    dtype = str(rng.choice(list(DTYPES)))
    size = DTYPES[dtype].size_bytes
    interleave = _mostly(rng, ["none"], INTERLEAVES[1:], 0.2)
    swizzle = str(rng.choice(SWIZZLES))
    unit = 32 if interleave == "32B" else 16
    dims = [_mostly(rng, _DIMS, [0, (1 << 32) + 1, 1 << 33], 0.01) for _ in range(rank)]
    stride = [16, 32, 48, 4096, 1 << 20, 1 << 36, (1 << 40) - 32, 0]
    call: Call = {
        "dtype": dtype,
        "address": _mostly(rng, [0x7F00_0000_0000, 1 << 56, 512, 32, 0], [8, 16, 24, 0x7F00_0000_0001], 0.03),
        "dims": dims,
        "strides": [_mostly(rng, stride, [8, unit // 2, unit + 8, 1 << 40], 0.015) for _ in range(rank - 1)],
        "element_strides": [_mostly(rng, [1, 1, 1, 2, 3, 8], [0, 9], 0.01) for _ in range(rank)],
        "interleave": interleave,
        "swizzle": swizzle,
        "l2_promotion": str(rng.choice(L2_PROMOTIONS)),
        "oob_fill": _mostly(rng, ["zero", "nan"] if DTYPES[dtype].kind == "f" else ["zero"], ["nan"], 0.03),
    }
    inner = _inner(rng, size, swizzle)
    if not is_im2col:
        return call | {"box": [inner, *(_mostly(rng, [1, 2, 3, 8, 64], [0, 256, 257], 0.06) for _ in range(rank - 1))]}
    limit = 1 << corner_bits(min(max(rank - 2, 1), 3)) - 1
    return call | {
        "lower_corner": [_corner(rng, dims, i, limit) for i in range(rank - 2)],
        "upper_corner": [_corner(rng, dims, i, limit) for i in range(rank - 2)],
        "channels_per_pixel": inner,
        "pixels_per_column": _mostly(rng, [1, 2, 64, 1023, 1024], [0, 1025], 0.03),
    }


_DIMS = [1, 2, 7, 64, 1000, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]


def _inner(rng: np.random.Generator, size: int, swizzle: str) -> int:
    """Return an inner extent in elements: whole chunks within the swizzle's span, or now and then not."""
    most = SPANS[swizzle] // 16 if swizzle != "none" else 16
    chunks = 16 * int(rng.integers(1, most + 1)) // size
    return _mostly(rng, [max(chunks, 1)], [0, 1, 256, 257, chunks + 1, 16 * (most + 1) // size], 0.08)


def _corner(rng: np.random.Generator, dims: Sequence[int], i: int, limit: int) -> int:
    near = [0, 1, -1, -limit, limit - 1]
    return _mostly(rng, near, [-limit - 1, limit, -dims[i] % limit, dims[1 + i] % limit], 0.05)


def _mostly(rng: np.random.Generator, usual: Sequence[Any], seldom: Sequence[Any], share: float) -> Any:
    """Return one of ``usual``, or with the given probability one of ``seldom``."""
    pool = seldom if rng.random() < share else usual
    return pool[int(rng.integers(len(pool)))]
