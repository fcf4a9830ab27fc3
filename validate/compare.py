"""Comparison of results bit for bit: digests, how many elements differ, and the first that do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from h100sim.errors import UsageError

#: Differences that a comparison spells out.
SHOWN = 8


@dataclass(frozen=True)
class Difference:
    """One element that differs: its index and the bits on both sides."""

    index: tuple[int, ...]
    expected: int
    actual: int
    bits: int

    def __str__(self) -> str:
        digits = self.bits // 4
        return f"{list(self.index)}: {self.actual:#0{digits + 2}x}, not {self.expected:#0{digits + 2}x}"


@dataclass(frozen=True)
class Comparison:
    """Two arrays of bits: how many elements there are, how many differ, the first of those, and the digests of both."""

    elements: int
    differing: int
    first: tuple[Difference, ...]
    expected_sha256: str
    actual_sha256: str

    @property
    def is_equal(self) -> bool:
        return self.differing == 0

    def __str__(self) -> str:
        if self.is_equal:
            return f"all {self.elements:,} elements have the same bits (sha256 {self.actual_sha256[:16]})"
        lines = [f"{self.differing:,} of {self.elements:,} elements differ; the first:"]
        return "\n".join([*lines, *(f"  {difference}" for difference in self.first)])


def sha256(array: np.ndarray | bytes | str) -> str:
    """Return the digest of an array's bytes in C order, of bytes, or of text as UTF-8."""
    if isinstance(array, np.ndarray):
        array = np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(array.encode() if isinstance(array, str) else array).hexdigest()


def ptx_sha256(ptx: str) -> str:
    """Return the digest of a PTX text without comments, blank lines and source locations (the paths of one machine)."""
    lines = (line.split("//")[0].strip() for line in ptx.splitlines())
    return sha256("\n".join(line for line in lines if line and not line.startswith((".loc", ".file"))))


def bits(array: np.ndarray) -> np.ndarray:
    """Return the elements of an array as unsigned integers of the same width (1 to 8 bytes)."""
    array = np.ascontiguousarray(array)
    return array.view(np.dtype(f"u{array.dtype.itemsize}")).reshape(array.shape)


def compare(expected: np.ndarray, actual: np.ndarray) -> Comparison:
    """Compare two arrays of the same shape and element width; NaN payloads and signed zeros count."""
    if expected.shape != actual.shape or expected.dtype.itemsize != actual.dtype.itemsize:
        raise UsageError(
            f"arrays must have the same shape and width, not {expected.shape} of {expected.dtype} "
            f"and {actual.shape} of {actual.dtype}"
        )
    left, right = bits(expected), bits(actual)
    wrong = np.argwhere(left != right)
    first = tuple(
        Difference(tuple(map(int, index)), int(left[tuple(index)]), int(right[tuple(index)]), 8 * left.dtype.itemsize)
        for index in wrong[:SHOWN]
    )
    return Comparison(left.size, len(wrong), first, sha256(left), sha256(right))
