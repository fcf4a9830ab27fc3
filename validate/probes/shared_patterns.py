"""The lane addresses with which the probe of shared memory asks: every pattern by name, the same for every run.

A pattern is a row of 32 byte offsets, one per lane, all multiples of the access width; -1 is a lane that takes no part.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

#: Offsets stay below this; what an access adds for its place in the unrolled loop comes on top.
LIMIT_BYTES = 32_768

_LANE = np.arange(32)
_STRIDES = (8, 16, 20, 32, 64, 80, 128, 132, 136, 144, 256, 272)


def patterns(width_bytes: int) -> dict[str, np.ndarray]:
    """Return name -> int32 (32,) offsets for accesses of ``width_bytes`` per lane."""
    found = {
        "linear": _LANE * width_bytes,
        "reversed": (31 - _LANE) * width_bytes,
        "one address": _LANE * 0,
        **_strided(width_bytes),
        **_shared_between_lanes(width_bytes),
        **_shared_between_some(width_bytes),
        **_interleaved(width_bytes),
        **_masked(width_bytes),
        **_random(width_bytes),
    }
    for name, offsets in found.items():
        assert not (offsets[offsets >= 0] % width_bytes).any() and offsets.max() < LIMIT_BYTES, name
    return {name: offsets.astype(np.int32) for name, offsets in found.items()}


def _strided(width: int) -> dict[str, np.ndarray]:
    return {f"stride {s}": _LANE * s for s in _STRIDES if s > width and s % width == 0}


def _shared_between_lanes(width: int) -> dict[str, np.ndarray]:
    """Lanes whose numbers differ only in the named bits give one address; the addresses are consecutive."""
    found = {}
    for count in (1, 2):
        for bits in combinations(range(5), count):
            kept = [b for b in range(5) if b not in bits]
            address = np.sum([(_LANE >> b & 1) << i for i, b in enumerate(kept)], axis=0) * width
            found[f"lanes xor {'+'.join(str(1 << b) for b in bits)} share"] = address
    return found


def _shared_between_some(width: int) -> dict[str, np.ndarray]:
    """The same for some of the lanes, while the others have addresses of their own."""
    first = {count: count > _LANE for count in (4, 8, 16)}
    parts = {
        **{f"lanes 0-{count - 1}": np.where(mask, 1, 0) for count, mask in first.items()},
        "lanes 16-31": np.where(first[16], 0, 1),
        "all but lanes 0-3": np.where(first[4], 0, 1),
        "lanes 0-15 xor 1, 16-31 xor 2": np.where(first[16], 1, 2),
        "lanes 0-7 xor 1, 8-15 xor 2": np.where(first[8], 1, np.where(first[16], 2, 0)),
    }
    return {
        f"{name}{'' if 'xor' in name else ' xor 1'} share": np.unique(_LANE & ~bits, return_inverse=True)[1] * width
        for name, bits in parts.items()
    }


def _interleaved(width: int) -> dict[str, np.ndarray]:
    """Neighbouring lanes collide, and so do lanes far apart, at equal counts of words per bank over all lanes."""
    per_line = max(128 // max(width, 4), 1)
    rows = 32 // per_line
    column, row = _LANE // rows, _LANE % rows
    found = {"neighbours collide": row * 128 + column * max(width, 4)}
    found["rows of a 128B swizzle"] = (_LANE * 128) ^ ((_LANE % 8) << 4)
    found["rows of a 64B swizzle"] = (_LANE * 64) ^ ((_LANE // 2 % 4) << 4)
    found["two lines"] = _LANE % 2 * 128
    found["four lines"] = _LANE % 4 * 128
    return found


def _masked(width: int) -> dict[str, np.ndarray]:
    masks = {
        "lane 0": _LANE == 0,
        "lanes 0-7": _LANE < 8,
        "lanes 0-15": _LANE < 16,
        "even lanes": _LANE % 2 == 0,
        "every fourth lane": _LANE % 4 == 0,
        "every eighth lane": _LANE % 8 == 0,
    }
    return {f"linear, {name}": np.where(mask, _LANE * width, -1) for name, mask in masks.items()}


def _random(width: int) -> dict[str, np.ndarray]:
    """Random lanes for consecutive addresses, few addresses, pairs, anywhere, and anywhere with lanes left out."""
    found: dict[str, np.ndarray] = {}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        anywhere = rng.integers(0, 4096 // width, 32) * width
        found[f"random order {seed}"] = rng.permutation(32) * width
        found[f"random of 8 {seed}"] = rng.integers(0, 8, 32) * width
        found[f"random of 16 lines {seed}"] = rng.integers(0, 16, 32) * 128 + rng.integers(0, 2, 32) * width
        found[f"random pairs {seed}"] = rng.permutation(32) // 2 * width
        found[f"random {seed}"] = anywhere
        found[f"random, lanes left out {seed}"] = np.where(rng.random(32) < 0.5, anywhere, -1)
    return found
