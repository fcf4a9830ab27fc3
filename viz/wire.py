"""How a recording travels to the browser: one JSON header and raw little-endian columns, in one block of bytes.

Layout: the length of the header (u4), the header (UTF-8 JSON, padded with blanks to a multiple of 8), then the columns,
each padded to a multiple of 8. In the header a column is ``{"column": [offset, length, type]}`` with ``type`` one of
u1, i2, u2, i4, u4, f4, f8; everything else is plain JSON. The browser maps the columns without copying them.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import numpy as np

_TYPES = {"u1", "i2", "u2", "i4", "u4", "f4", "f8"}


def encode(value: Any) -> bytes:
    """Return the bytes of a nested dict or list whose arrays become columns. Raises TypeError for other arrays."""
    columns: list[bytes] = []
    size = 0

    def plain(node: Any) -> Any:
        nonlocal size
        if isinstance(node, np.ndarray):
            kind = node.dtype.str[1:]
            if kind not in _TYPES or node.ndim != 1:
                raise TypeError(f"column must be one-dimensional and one of {sorted(_TYPES)}, not {node.dtype} {node.shape}")
            data = np.ascontiguousarray(node, node.dtype.newbyteorder("<")).tobytes()
            reference = {"column": [size, len(node), kind]}
            columns.append(data + bytes(-len(data) % 8))
            size += len(columns[-1])
            return reference
        if isinstance(node, dict):
            return {str(k): plain(v) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return [plain(v) for v in node]
        if isinstance(node, np.generic | IntEnum):
            return node.item() if isinstance(node, np.generic) else int(node)
        return node

    header = json.dumps(plain(value), separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 4) % 8)
    return len(header).to_bytes(4, "little") + header + b"".join(columns)


def decode(data: bytes) -> Any:
    """Return what :func:`encode` was given, columns as NumPy arrays."""
    length = int.from_bytes(data[:4], "little")
    start = 4 + length

    def rich(node: Any) -> Any:
        if isinstance(node, dict):
            if set(node) == {"column"}:
                offset, count, kind = node["column"]
                return np.frombuffer(data, "<" + kind, count, start + offset)
            return {k: rich(v) for k, v in node.items()}
        if isinstance(node, list):
            return [rich(v) for v in node]
        return node

    return rich(json.loads(data[4:start]))
