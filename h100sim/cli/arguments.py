"""The text forms of the command line: kernel arguments, sizes and settings.

=============================  ===========================================================================
``i32:5``  ``u64:7``           a number of a PTX type (``i32`` is ``s32``)
``zeros:f32:1024x64``          an array; also ``ones``
``arange:u32:100``             0, 1, 2, ...
``randn:bf16:256x256:7``       standard normal values from seed 7 (left out: the seed of ``--seed``)
``randint:s8:64x64:7``         every bit pattern of the type with the same chance
``file:x.npy``                 the array of a NumPy file
``map:FORM;box=64x64;...``     a tensor map of an array of one of these forms; settings: ``box`` in the order of
                               the shape (outermost first), ``swizzle``, ``interleave``, ``oob_fill``
=============================  ===========================================================================
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..dtypes import ELEMENT_TYPES, ElementType
from ..errors import UsageError

_TYPES = {element.name: element for element in ELEMENT_TYPES if element.bits >= 8}
_ALIASES = {"i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64"}
_ARRAYS = ("zeros", "ones", "arange", "randn", "randint")
#: Bytes that an array argument may have: as much as an H100 has memory.
MOST_BYTES = 80 << 30
#: Dimensions that a NumPy 1 array may have.
_MOST_DIMENSIONS = 32
_MAP_SETTINGS = ("box", "swizzle", "interleave", "oob_fill", "l2_promotion")


@dataclass(frozen=True)
class MapArgument:
    """A tensor map to be made of ``array`` once it has an address; ``settings`` are those of ``TensorMap.tiled``."""

    array: np.ndarray
    element: ElementType
    box: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)


def kernel_argument(text: str, seed: int = 0) -> Any:
    """Return the NumPy scalar, the array or the MapArgument that a text form means. Raises UsageError."""
    kind, _, rest = text.partition(":")
    if kind == "map":
        return _map(text, rest, seed)
    if kind == "file":
        return _file(rest)
    if kind in _ARRAYS:
        return _array(text, kind, rest, seed)[0]
    if kind in _TYPES or kind in _ALIASES:
        return _number(text, _element(kind, text), rest)
    raise UsageError(
        f"argument must be TYPE:NUMBER, file:NAME.npy, map:FORM or one of {', '.join(_ARRAYS)} with :TYPE:SHAPE, not {text}"
    )


def dimensions(name: str, text: str) -> tuple[int, int, int]:
    """Return (x, y, z) from "4", "4,2" or "4x2x1". Raises UsageError."""
    try:
        sizes = [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3:
        raise UsageError(f"{name} must be one to three integers such as 4,1,1, not {text}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``name=value`` texts: numbers, booleans and tuples as such, the rest as text."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set must be NAME=VALUE, not {text}")
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[name] = value
    return values


def saved_outputs(texts: Sequence[str], count: int) -> list[tuple[int, Path]]:
    """Return (index, path) of ``INDEX=NAME.npy`` texts; ``count`` is the number of arrays there are."""
    wanted = []
    for text in texts:
        index, equals, name = text.partition("=")
        if not equals or not index.isdecimal() or not name:
            raise UsageError(f"--save must be INDEX=NAME.npy, not {text}")
        if int(index) >= count:
            raise UsageError(f"--save must have an index below {count} (the number of arrays), not {index}")
        wanted.append((int(index), Path(name)))
    return wanted


def _element(name: str, text: str) -> ElementType:
    element = _TYPES.get(_ALIASES.get(name, name))
    if element is None:
        raise UsageError(f"type of an argument must be one of {', '.join(_TYPES)}, not {name or text}")
    return element


def _number(text: str, element: ElementType, value: str) -> np.generic:
    try:
        number = float(value) if element.is_float else int(value, 0)
        with np.errstate(over="ignore"):
            return element.natural.type(number)
    except (ValueError, OverflowError):
        raise UsageError(f"argument must be a number of type {element.name}, not {text}") from None


def _file(name: str) -> np.ndarray:
    try:
        array = np.load(name, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"argument file must be a NumPy .npy file, not {name} ({error})") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"argument file must hold one array (.npy), not {name}")
    if array.dtype.kind not in "biufcV":
        raise UsageError(f"argument file must hold numbers, not {name} of {array.dtype}")
    return np.ascontiguousarray(array)


def _array(text: str, kind: str, rest: str, seed: int) -> tuple[np.ndarray, ElementType]:
    parts = rest.split(":")
    random = kind.startswith("rand")
    if len(parts) not in ((2, 3) if random else (2,)):
        raise UsageError(f"argument must be {kind}:TYPE:SHAPE{'[:SEED]' * random}, not {text}")
    element = _element(parts[0], text)
    try:
        shape = tuple(int(size) for size in parts[1].split("x"))
        generator = np.random.default_rng(int(parts[2]) if len(parts) == 3 else seed)
    except ValueError:
        shape, generator = (), np.random.default_rng(seed)
    if not 0 < len(shape) <= _MOST_DIMENSIONS or min(shape) < 1:
        raise UsageError(f"shape of an argument must be positive integers such as 256x256, not {text}")
    try:
        if math.prod(shape) * element.size_bytes > MOST_BYTES:
            raise MemoryError
        return _filled(kind, element, shape, generator), element
    except MemoryError:
        raise UsageError(f"array of an argument must fit into the memory of this machine and of an H100, not {text}") from None


def _filled(kind: str, element: ElementType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if kind == "randn":
        if not element.is_float:
            raise UsageError(f"randn must have a floating-point type, not {element.name} (use randint)")
        return generator.standard_normal(shape, np.float32).astype(element.natural)
    if kind == "randint":
        raw = np.frombuffer(generator.bytes(int(np.prod(shape)) * element.size_bytes), element.natural)
        return raw.reshape(shape).copy()
    if kind == "arange":
        return np.arange(np.prod(shape)).astype(element.natural).reshape(shape)
    return np.full(shape, int(kind == "ones")).astype(element.natural)


def _map(text: str, rest: str, seed: int) -> MapArgument:
    form, *pairs = rest.split(";")
    kind, _, inner = form.partition(":")
    if kind not in _ARRAYS:
        raise UsageError(f"map must be of one of {', '.join(_ARRAYS)} with :TYPE:SHAPE, not {text}")
    array, element = _array(form, kind, inner, seed)
    given = settings(pairs)
    unknown = [name for name in given if name not in _MAP_SETTINGS]
    if unknown:
        raise UsageError(f"settings of a map must be among {', '.join(_MAP_SETTINGS)}, not {', '.join(unknown)}")
    if "box" not in given:
        raise UsageError(f"map must have a box such as ;box=64x64, not only {text}")
    try:
        box = tuple(int(size) for size in str(given.pop("box")).split("x"))
    except ValueError:
        box = ()
    if len(box) != array.ndim:
        raise UsageError(f"box of a map must have {array.ndim} sizes as the array, not {text}")
    return MapArgument(array, element, box, {name: str(value) for name, value in given.items()})
