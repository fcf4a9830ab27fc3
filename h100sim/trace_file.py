"""Traces in files: a zip of ``manifest.json`` and ``.npy`` members (never a pickle), written and read.

What is read may be damaged or made by somebody else. Whoever looks at a trace relies on its numbers being in range, so all of them
are checked once, here: kinds of events, warps, CTAs, instructions, rows of addresses, and the fields of the kernel.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .errors import UsageError
from .hazard import Hazard
from .integers import integer
from .trace import CTA_INFO, EVENT, FORMAT_VERSION, WARP_INFO, Cause, Copy, Event, KernelInfo, Space, Trace, Wait

_MEMBERS = ("events", "lanes", "warps", "ctas")
_TYPES = {"events": EVENT, "warps": WARP_INFO, "ctas": CTA_INFO, "lanes": np.dtype(np.int64)}
#: Numbers of CTAs, warps, SMs and cycles of a trace stay below these.
_MOST, _MOST_CYCLES = 1 << 31, 1 << 56
#: Kinds of event whose field is a number of an enumeration.
_ENUMERATED = (
    ("a", (Event.BLOCKED, Event.RESUMED), Wait),
    ("b", (Event.ISSUED,), Cause),
    ("a", (Event.TMA_ISSUED, Event.TMA_COMPLETED), Copy),
    ("c", (Event.MEMORY,), Space),
)
#: Kinds of event that stand for an operation of their own, and kinds that a warp makes.
_OF_OPERATIONS = (
    Event.TMA_ISSUED, Event.TMA_STARTED, Event.TMA_READ, Event.TMA_COMPLETED, Event.WGMMA_ISSUED, Event.WGMMA_STARTED,
    Event.WGMMA_COMPLETED,
)  # fmt: skip
_OF_WARPS = (
    Event.ISSUED, Event.BLOCKED, Event.RESUMED, Event.EXITED, Event.TMA_ISSUED, Event.WGMMA_ISSUED, Event.WGMMA_STARTED,
    Event.MEMORY, Event.BANK_CONFLICT, Event.PORT_HELD,
)  # fmt: skip
#: What reading a damaged file may raise.
_DAMAGE = (
    EOFError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, AttributeError, NotImplementedError, RuntimeError,
    RecursionError, OverflowError, MemoryError,
)  # fmt: skip


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace; the same one gives the same bytes. Raises UsageError for a file that cannot be written."""
    manifest = {
        "format": "h100sim-trace",
        "version": FORMAT_VERSION,
        "cycles": int(trace.cycles),
        "kernel": dict(trace.kernel.__dict__),
        "texts": list(trace.texts),
        "hazards": None if trace.hazards is None else [hazard.to_json() for hazard in trace.hazards],
        "kinds": {k.name: int(k) for k in Event},
    }
    if not isinstance(path, (str, Path)):
        raise UsageError(f"path must be a str or a Path, not {path!r}")
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive:
            _write(archive, "manifest.json", json.dumps(manifest, sort_keys=True).encode())
            for name in _MEMBERS:
                buffer = io.BytesIO()
                np.save(buffer, getattr(trace, name), allow_pickle=False)
                _write(archive, f"{name}.npy", buffer.getvalue())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"file must be one that can be written, not {path} ({reason})") from None


def load(path: str | Path) -> Trace:
    """Read a trace that :func:`save` wrote. Raises UsageError if it is not one, damaged, or of a newer version."""
    if not isinstance(path, (str, Path)):
        raise UsageError(f"path must be a str or a Path, not {path!r}")
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except OSError as error:
        reason: object = error.strerror or error
    except KeyError as error:
        # The archive says what it lacks in a sentence, a mapping gives the key.
        named = str(error.args[0]) if error.args else ""
        reason = named[:1].lower() + named[1:] if " " in named else f"it has no {named}"
    except zipfile.BadZipFile as error:
        reason = error
    except UsageError as error:
        if error.message.startswith("trace format"):
            raise
        reason = error.message
    except _DAMAGE as error:
        reason = f"{error}".splitlines()[0] if str(error) else type(error).__name__
    raise UsageError(f"trace file must be one that h100sim wrote, not {path} ({reason})")


def _read(archive: zipfile.ZipFile) -> Trace:
    manifest = json.loads(archive.read("manifest.json"))
    if not isinstance(manifest, dict) or manifest.get("format") != "h100sim-trace":
        raise UsageError("its manifest must be that of a trace, not of something else")
    if integer("its version", manifest["version"], 1) > FORMAT_VERSION:
        raise UsageError(f"trace format must be at most version {FORMAT_VERSION}, not {manifest['version']}")
    arrays = {name: np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False) for name in _MEMBERS}
    kernel = _kernel({k: _tuples(v) for k, v in manifest["kernel"].items()})
    found = manifest.get("hazards")
    hazards = None if found is None else tuple(Hazard.from_json(plain) for plain in found)
    texts = tuple(manifest["texts"])
    _require("texts must be a list of texts", all(isinstance(text, str) for text in texts))
    trace = Trace(kernel, cycles=integer("its cycles", manifest["cycles"], 0, _MOST_CYCLES), texts=texts, hazards=hazards, **arrays)
    _check_arrays(trace)
    return trace


def _require(rule: str, holds: bool | np.bool_) -> None:
    if not holds:
        raise UsageError(f"its {rule}")


# --- the kernel -------------------------------------------------------------------------------------------------------


def _is_source(value: Any) -> bool:
    return value is None or (_is_tuple(2)(value) and isinstance(value[0], str) and _is_count(value[1]))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _is_tuple(length: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and len(value) == length


def _is_tuple_of(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(of, value))


def _is_size(value: Any) -> bool:
    return _is_tuple(3)(value) and all(_is_count(size) and size > 0 for size in value)


def _is_role(value: Any) -> bool:
    return _is_tuple(3)(value) and isinstance(value[0], str) and _is_count(value[1]) and _is_count(value[2])


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and _is_count(value.get("offset"))


def _kernel(fields: dict[str, Any]) -> KernelInfo:
    """Return the kernel of a manifest. Raises UsageError."""
    each: dict[str, Callable[[Any], bool]] = {
        "lines": _is_count, "opcodes": lambda v: isinstance(v, str), "sources": _is_source, "roles": _is_role,
        "tiles": lambda v: _is_named(v) and _is_tile(v), "semaphores": lambda v: _is_named(v) and _is_count(v.get("count")),
    }  # fmt: skip
    whole: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(("name", "ptx", "device"), lambda v: isinstance(v, str)),
        **dict.fromkeys(("grid", "block", "cluster"), _is_size),
        "clock_mhz": lambda v: _is_count(v) and v > 0,
        "files": lambda v: isinstance(v, dict) and all(isinstance(text, str) for text in v.values()),
        **{name: _is_tuple_of(of) for name, of in each.items()},
    }
    kernel = KernelInfo(**fields)
    for name, holds in whole.items():
        _require(
            f"kernel must have a {name} as h100sim writes it, not {getattr(kernel, name)!r}"[:160], holds(getattr(kernel, name))
        )
    one_each = len(kernel.lines) == len(kernel.opcodes) == len(kernel.sources)
    _require("kernel must have a line, an opcode and a source for each instruction", one_each)
    return kernel


def _is_tile(value: dict[str, Any]) -> bool:
    shape, count = value.get("shape"), value.get("count")
    lists = [size if isinstance(size, list | tuple) else [size] for size in (shape, count)]
    return isinstance(value.get("dtype"), str) and _is_count(value.get("swizzle")) and all(map(_is_count, [*lists[0], *lists[1]]))


# --- the arrays -------------------------------------------------------------------------------------------------------


def _check_arrays(trace: Trace) -> None:
    """Raise UsageError for arrays of other types and shapes than h100sim writes, and for numbers in them that name nothing."""
    for name, dtype in _TYPES.items():
        array = getattr(trace, name)
        shape_fits = array.ndim == (2 if name == "lanes" else 1) and (name != "lanes" or array.shape[1] == 32)
        _require(
            f"{name} must be a table as h100sim writes it, not {array.dtype} {array.shape}"[:160],
            array.dtype == dtype and shape_fits,
        )
    e, warps, ctas, kernel = trace.events, trace.warps, trace.ctas, trace.kernel
    n_ctas = len(ctas)
    # Rows of CTAs that a stopped run had not started are empty.
    _require(
        "ctas must be numbered from 0 on", ((ctas["cta"] == np.arange(n_ctas)) | ((ctas["cta"] == 0) & (ctas["end"] == 0))).all()
    )
    _within("ctas", "sm", ctas["sm"], 0, _MOST)
    for name in ("start", "end"):
        _within("ctas", name, ctas[name], 0, _MOST_CYCLES)
    for name in ("cluster", "cluster_rank"):
        _within("ctas", name, ctas[name], 0, _MOST)
    per_cta = -(-int(np.prod(kernel.block, dtype=object)) // 32)
    _require(f"warps must be {per_cta} for each CTA, not {len(warps)} in all", len(warps) == n_ctas * per_cta)
    for name, most in (("cta", n_ctas), ("rank", per_cta), ("sm", _MOST), ("scheduler", 4)):
        _within("warps", name, warps[name], 0, most)
    kinds = np.array([int(kind) for kind in Event])
    _require("events must be of kinds that there are", np.isin(e["kind"], kinds).all())
    _within("events", "time", e["time"], 0, _MOST_CYCLES)
    _within("events", "cta", e["cta"], -1, n_ctas)
    _within("events", "warp", e["warp"], -1, len(warps))
    # Behind the last instruction stands the return of a body that ends without one.
    _within("events", "pc", e["pc"], -1, len(kernel.opcodes) + 1)
    _within("events", "op", e["op"], -1, max(len(e), 1))
    for name, of, numbers in _ENUMERATED:
        rows = e[np.isin(e["kind"], of)]
        _require(f"events must have a {numbers.__name__} in {name}", np.isin(rows[name], [int(v) for v in numbers]).all())
    _within("events", "op of an operation", e["op"][np.isin(e["kind"], _OF_OPERATIONS)], 0, max(len(e), 1))
    of_warps = e[np.isin(e["kind"], _OF_WARPS)]
    for name, most in (("warp", len(warps)), ("cta", n_ctas)):
        _within("events", f"{name} of a warp's event", of_warps[name], 0, most)
    does = np.isin(e["kind"], (*_OF_OPERATIONS, Event.MEMORY, Event.BANK_CONFLICT, Event.PORT_HELD))
    _within("events", "pc of an access or operation", e["pc"][does], -1, len(kernel.opcodes))
    _within("events", "row of lanes", e["a"][e["kind"] == Event.MEMORY], -1, len(trace.lanes))
    _within("events", "row of texts", e["a"][e["kind"] == Event.PRINTED], 0, len(trace.texts))


def _within(table: str, name: str, values: np.ndarray, least: int, below: int) -> None:
    wrong = values[(values < least) | (values >= below)]
    if len(wrong):
        raise UsageError(f"{name} in its {table} must be from {least} to {below - 1}, not {wrong[0]}")


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
