"""Kernels: a Python function traced once into PTX text, with what people and launchers need to know about it.

``@tk.kernel(...)`` turns the function into a :class:`Kernel` at once. The text carries its own source map (``.file``
and ``.loc``), so it can be saved, assembled with ``ptxas -arch=sm_90a`` or handed to CuPy as it is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UsageError, Where
from .builder import Builder, Location, current, tracing, usage
from .explain import Explanation, explain
from .floats import Float
from .global_memory import GlobalTensor, TensorMapSpec
from .ptx_text import assemble
from .register_tiles import RegisterTile
from .register_vectors import RegisterVector
from .scalars import Int
from .semaphores import check_initialised
from .tiles import GlobalLayout, ScalarLayout, SharedTile, fl, int32, shared_offset

#: Spec: CUDA C++ Programming Guide 13.0, "Compute Capabilities": registers of an SM, threads of a CTA.
_SM_REGISTERS, _MOST_THREADS = 65_536, 1024


@dataclass(frozen=True)
class Argument:
    """An argument: its layout (a ``gl``, or a number), whether the kernel reads and writes it."""

    name: str
    layout: GlobalLayout | ScalarLayout
    is_input: bool
    is_output: bool


@dataclass(frozen=True)
class Parameter:
    """A PTX parameter: the argument it comes from, and the tensor map to encode (None: the pointer or number itself, or
    with ``axis`` the size of that dimension). ``declaration``: its text.
    """

    name: str
    argument: int
    map: TensorMapSpec | None
    declaration: str = field(default="", compare=False)
    axis: int | None = None


@dataclass(frozen=True)
class DebugInfo:
    """Names of things. ``roles``: (name, first warp, last warp). ``tiles``: name, space "shared", offset in the CTA's
    shared window, shape, dtype, swizzle in bytes, count. ``semaphores``: name, offset, count. ``registers``: name,
    dtype, shape and the PTX registers of each register tile or vector, base tile after base tile.
    """

    roles: tuple[tuple[str, int, int], ...]
    tiles: tuple[dict[str, Any], ...]
    semaphores: tuple[dict[str, Any], ...]
    registers: tuple[dict[str, Any], ...]


@dataclass
class Kernel:
    """A traced kernel. ``source_map``: PTX line to (Python file, line). ``last_run``: what the last ``run`` gave, if
    any.
    """

    name: str
    ptx: str
    source_map: dict[int, tuple[str, int]]
    debug: DebugInfo
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]
    last_run: Any = field(default=None, compare=False)
    _decoded: tuple[str, Any] = field(default=("", None), init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<tk.Kernel {self.name}: grid {self.grid}, block {self.block}, {self.shared_bytes:,} shared bytes>"

    def launch_args(self, *buffers: Any, address_of: Callable[[Any], int]) -> list[Any]:
        """Return the launch arguments in the order of the PTX parameters: tensor maps, buffers where it wants
        pointers, and numbers.

        ``buffers``: device memory for each ``gl`` argument, the number for a scalar one (see :meth:`upload`);
        ``address_of`` tells where a buffer lies.
        """
        if len(buffers) != len(self.arguments):
            raise UsageError(f"kernel {self.name} must be given {len(self.arguments)} buffers, not {len(buffers)}")
        sizes: dict[str, int] = {}
        for a, buffer in zip(self.arguments, buffers, strict=True):
            if isinstance(a.layout, GlobalLayout) and any(isinstance(n, str) for n in a.layout.shape):
                sizes |= _sizes(a, a.layout, buffer.shape, sizes)

        def value(p: Parameter) -> Any:
            buffer = buffers[p.argument]
            if p.map is not None:
                return p.map.encode(address_of(buffer), sizes)
            return buffer if p.axis is None else np.int32(buffer.shape[p.axis])

        return [value(p) for p in self.parameters]

    def upload(self, arrays: Sequence[np.ndarray], device: Any) -> list[Any]:
        """Return device memory of a simulated ``device`` for every array, and scalars as they are."""
        return [
            device.asarray(array, name=a.name) if isinstance(a.layout, GlobalLayout) else array
            for array, a in zip(arrays, self.arguments, strict=True)
        ]

    def arrays(self, *inputs: Any) -> list[np.ndarray]:
        """Return one host array for each argument: the inputs (of no dimension for scalars), and outputs filled with
        NaN patterns (all bits set).

        Raises UsageError for inputs of the wrong number, type or shape.
        """
        wanted = [a for a in self.arguments if a.is_input]
        if len(inputs) != len(wanted):
            names = ", ".join(a.name for a in wanted)
            raise UsageError(f"kernel {self.name} must be given {len(wanted)} inputs ({names}), not {len(inputs)}")
        given = dict(zip((a.name for a in wanted), inputs, strict=True))
        arrays = {a.name: _input(a, given[a.name]) for a in wanted}
        sizes: dict[str, int] = {}
        for a in wanted:
            if isinstance(a.layout, GlobalLayout):
                sizes |= _sizes(a, a.layout, arrays[a.name].shape, sizes)
        return [arrays[a.name] if a.is_input else _output(a, sizes) for a in self.arguments]

    def run(self, *inputs: Any, on: str = "sim", **options: Any) -> Any:
        """Run the kernel on the simulator (``on="sim"``) or a Hopper GPU (``on="gpu"``); return its output or outputs.

        ``options`` go to the launch (``device``, ``values``, ``checks``, ...). ``last_run`` keeps cycles, hazards and
        trace.
        """
        if on not in ("sim", "gpu"):
            raise UsageError(f"on must be sim or gpu, not {on!r}")
        arrays = self.arrays(*inputs)
        if on == "gpu":
            from validate import gpu

            self.last_run = gpu.run(self, arrays, **options)
            outputs = tuple(arrays[i] for i, a in enumerate(self.arguments) if a.is_output)
        else:
            outputs = self._simulate(arrays, **options)
        return outputs[0] if len(outputs) == 1 else outputs

    def _simulate(self, arrays: Sequence[np.ndarray], device: Any = None, **options: Any) -> tuple[np.ndarray, ...]:
        from ..host import Device

        gpu = device if isinstance(device, Device) else Device(device) if device else Device()
        buffers = self.upload(arrays, gpu)
        try:
            function, launch = self.function(), self.launch_args(*buffers, address_of=lambda buffer: buffer.address)
            self.last_run = function(
                self.grid, self.block, launch, shared_mem=self.shared_bytes, cluster=self.cluster, device=gpu, **options
            )
            return tuple(b.numpy() for b, a in zip(buffers, self.arguments, strict=True) if a.is_output)
        finally:
            for buffer, a in zip(buffers, self.arguments, strict=True):
                if isinstance(a.layout, GlobalLayout):
                    buffer.free()

    def explain(self, line: int | None = None, *, full: bool = False, show: bool = True) -> Explanation:
        """Print the PTX that each Python line became (or one ``line``), and return it: ``str()`` for the text, a table
        in notebooks. Instructions of one opcode in a row are counted unless ``full``; ``show=False`` prints nothing.
        """
        explanation = explain(self.name, self.ptx, self.source_map, line, full)
        if show:
            print(explanation)
        return explanation

    def function(self) -> Any:
        """Return the simulator's function of this kernel, with names for reports, ready to launch or debug; the text is parsed
        and decoded once."""
        from ..host import RawModule

        text, function = self._decoded
        if function is None or text is not self.ptx:
            function = RawModule(code=self.ptx).get_function(self.name)
            function.max_dynamic_shared_size_bytes = self.shared_bytes
            function.names = {"roles": self.debug.roles, "tiles": self.debug.tiles, "semaphores": self.debug.semaphores}
            self._decoded = (self.ptx, function)
        return function


def _input(argument: Argument, value: Any) -> np.ndarray:
    layout = argument.layout
    if isinstance(layout, ScalarLayout):
        return _number(argument.name, layout, value)
    array = np.ascontiguousarray(value)
    if layout.sizes_of(array.shape) is None or array.dtype not in (layout.dtype.natural, layout.dtype.storage):
        raise UsageError(
            f"input {argument.name} must be {layout.dtype.natural} {_shape(layout)}, not {array.dtype} {array.shape}",
        )
    return array.copy()


def _number(name: str, layout: ScalarLayout, value: Any) -> np.ndarray:
    """Return a scalar argument as an array of no dimension, of its own type."""
    given, natural = np.asarray(value), layout.dtype.natural
    fits = given.dtype.kind in "iu" if layout.dtype is int32 else given.dtype.kind in "iuf"
    if given.ndim or not fits:
        found = type(value).__name__ if not isinstance(value, np.ndarray) else f"{given.dtype} {given.shape}"
        raise UsageError(f"input {name} must be {'an integer' if layout.dtype is int32 else 'a number'}, not {found}")
    if layout.dtype is int32 and not -(1 << 31) <= int(given) < 1 << 31:
        raise UsageError(f"input {name} must fit 32 bits, not {int(given)}")
    return given.astype(natural)


def _shape(layout: GlobalLayout) -> str:
    """Return a shape as Python writes it, with names as they are."""
    return f"({', '.join(map(str, layout.shape))}{',' if layout.ndim == 1 else ''})"


def _sizes(argument: Argument, layout: GlobalLayout, shape: tuple[int, ...], known: dict[str, int]) -> dict[str, int]:
    """Return the sizes of an argument's named dimensions. Raises UsageError where another argument's differ."""
    sizes = layout.sizes_of(shape) or {}
    for name, size in sizes.items():
        if known.get(name, size) != size:
            raise UsageError(f"size {name} of {argument.name} must be that of the arguments before, {known[name]}, not {size}")
    return sizes


def _output(argument: Argument, sizes: dict[str, int]) -> np.ndarray:
    layout = argument.layout
    for name in layout.shape:
        if isinstance(name, str) and name not in sizes:
            raise UsageError(f"size {name} of output {argument.name} must be a dimension of an input, too, not of outputs alone")
    shape = tuple(sizes[n] if isinstance(n, str) else n for n in layout.shape)
    return np.full(shape, np.iinfo(layout.dtype.storage).max, layout.dtype.storage).view(layout.dtype.natural)


def kernel(
    function: Any = None,
    *,
    grid: int | tuple[int, ...] | None = None,
    warpgroups: int | None = None,
    warps: int | None = None,
    cluster: int | tuple[int, ...] = 1,
    **layouts: Any,
) -> Callable[[Callable[..., None]], Kernel]:
    """Trace the decorated function into a :class:`Kernel` of ``grid`` CTAs of ``warpgroups`` (or ``warps``).

    Each parameter of the function is a ``tk.gl``, or a number (``int``: 32 bits; ``float``: f32) that is known only
    when the kernel runs; it is given as the annotation or as a keyword here. Raises UsageError, with the Python line,
    for everything that is wrong before it runs.
    """

    if function is not None:
        raise usage("tk.kernel must be called with its settings, as @tk.kernel(grid=..., warpgroups=...), not without")

    def trace(function: Callable[..., None]) -> Kernel:
        code = function.__code__
        where = Where(source=str(Location(code.co_filename, code.co_firstlineno)))
        count = _warps(warps, warpgroups, where)
        dimensions = _three("grid", grid, where), _three("cluster", cluster, where)
        builder = Builder(re.sub(r"\W", "_", function.__name__, flags=re.ASCII), count)
        builder.entry_location = Location(code.co_filename, code.co_firstlineno)
        known = _layouts(function, layouts, where)
        with tracing(builder):
            values = [_argument(name, layout) for name, layout in known.items()]
            function(*values)
            builder.end()
            _check_registers(builder, where)
            check_initialised()
            return _kernel(builder, list(zip(known.items(), values, strict=True)), *dimensions)

    return trace


#: What numbers as kernel arguments are annotated with: their type in the kernel.
_SCALARS = {int: int32, float: fl}


def _argument(name: str, layout: GlobalLayout | ScalarLayout) -> GlobalTensor | Int | Float:
    """Return what the traced function is given for an argument. PTX of a number: ``ld.param``."""
    if isinstance(layout, GlobalLayout):
        return GlobalTensor(name, layout)
    symbol = f"{name}_value"
    if layout.dtype is int32:
        return Int(current().once(symbol, "r", f"ld.param.u32 {{d}}, [{symbol}]"))
    return Float(current().once(symbol, "f", f"ld.param.f32 {{d}}, [{symbol}]"))


def _warps(warps: int | None, warpgroups: int | None, where: Where) -> int:
    if (warps is None) == (warpgroups is None):
        raise UsageError("kernel must be given either warpgroups or warps", where)
    given = warps if warps is not None else warpgroups
    if not isinstance(given, int):
        raise UsageError(f"{'warps' if warps is not None else 'warpgroups'} of a kernel must be an integer, not {given!r}", where)
    count = given if warps is not None else 4 * given
    if not 1 <= count <= _MOST_THREADS // 32:
        raise UsageError(f"warps of a CTA must be from 1 to {_MOST_THREADS // 32}, not {count}", where)
    return count


def _three(what: str, value: int | tuple[int, ...] | None, where: Where) -> tuple[int, int, int]:
    if value is None:
        raise UsageError(f"kernel must be given a {what}, as in @tk.kernel({what}=132, warpgroups=3), not none", where)
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise UsageError(f"{what} must be one to three positive integers, not {value}", where)
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


def _layouts(function: Callable[..., None], given: dict[str, Any], where: Where) -> dict[str, GlobalLayout | ScalarLayout]:
    parameters = inspect.signature(function).parameters
    for name in given.keys() - parameters.keys():
        raise UsageError(f"layout {name} must be that of a parameter of {function.__name__} ({', '.join(parameters)})", where)
    layouts = {name: given.get(name, parameter.annotation) for name, parameter in parameters.items()}
    layouts = {name: ScalarLayout(_SCALARS[x]) if x in (int, float) else x for name, x in layouts.items()}
    for name, layout in layouts.items():
        if not isinstance(layout, (GlobalLayout, ScalarLayout)):
            found = "nothing" if layout is inspect.Parameter.empty else repr(layout)
            raise UsageError(
                f"parameter {name} must be annotated with a tk.gl, int or float, not {found}",
                where,
                "or be given one as tk.kernel(..., NAME=tk.gl(...)), as files with postponed annotations need",
            )
    return layouts


def _check_registers(builder: Builder, where: Where) -> None:
    """Raise UsageError if setmaxnreg asks for more registers than the CTA starts with.

    Assumed: each thread starts with the largest count asked for, or what the SM has for so many threads if that is less
    (ptxas 13.0 compiles to that count under .maxntid and .minnctapersm). Spec: PTX ISA 9.1, "setmaxnreg".
    """
    asked = builder.warpgroup_registers
    if not asked:
        return
    groups = builder.warps // 4
    entry = min(_SM_REGISTERS // (32 * builder.warps) & ~7, max(asked.values()))
    counts = [asked.get(w, entry) for w in range(groups)]
    if sum(counts) > entry * groups:
        raise UsageError(
            f"registers of the {groups} warpgroups must sum to at most {entry * groups} per thread ({entry} each at "
            f"entry), not {' + '.join(map(str, counts))} = {sum(counts)}",
            where,
            'PTX ISA 9.1, "setmaxnreg": a warpgroup waits for ever for registers that nobody gives back',
        )


def _kernel(
    builder: Builder,
    arguments: list[tuple[tuple[str, GlobalLayout | ScalarLayout], GlobalTensor | Int | Float]],
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int],
) -> Kernel:
    parameters: list[Parameter] = []
    described: list[Argument] = []
    for i, ((name, layout), value) in enumerate(arguments):
        if not isinstance(value, GlobalTensor):
            kind = "u32" if layout.dtype is int32 else "f32"
            parameters.append(Parameter(f"{name}_value", i, None, f".param .{kind} {name}_value"))
            described.append(Argument(name, layout, True, False))
            continue
        for symbol, spec in value.maps.items():
            parameters.append(Parameter(symbol, i, spec, f".param .align 64 .b8 {symbol}[128]"))
        if value.has_pointer:
            parameters.append(Parameter(f"{name}_ptr", i, None, f".param .u64 {name}_ptr"))
        known = {p.name for p in parameters}
        for axis, size in enumerate(value.layout.shape):
            if isinstance(size, str) and f"{size}_size" not in known:
                parameters.append(Parameter(f"{size}_size", i, None, f".param .u32 {size}_size", axis))
                known.add(f"{size}_size")
        described.append(Argument(name, layout, value.is_read or not value.is_written, value.is_written))
    block = (32 * builder.warps, 1, 1)
    ptx, source_map = assemble(builder, [p.declaration for p in parameters], block, cluster)
    return Kernel(
        builder.name,
        ptx,
        source_map,
        _debug(builder),
        grid,
        block,
        cluster,
        builder.shared_bytes,
        tuple(described),
        tuple(parameters),
    )


def _debug(builder: Builder) -> DebugInfo:
    return DebugInfo(
        roles=tuple(sorted(builder.roles, key=lambda role: role[1])),
        tiles=tuple(_tile(t) for t in builder.shared_tiles),
        semaphores=tuple({"name": s.name, "offset": shared_offset(s.address), "count": s.count} for s in builder.semaphores),
        registers=tuple(_register_tile(t) for t in builder.register_tiles),
    )


def _tile(tile: Any) -> dict[str, Any]:
    is_tile = isinstance(tile, SharedTile)
    return {
        "name": tile.name,
        "space": "shared",
        "offset": shared_offset(tile.address),
        "shape": (tile.rows, tile.cols) if is_tile else (1, tile.length),
        "dtype": tile.dtype.name,
        "swizzle": tile.swizzle if is_tile else 0,
        "count": tile.count if is_tile else ((tile.count,) if tile.count > 1 else ()),
    }


def _register_tile(tile: RegisterTile | RegisterVector) -> dict[str, Any]:
    shape = (tile.rows, tile.cols) if isinstance(tile, RegisterTile) else (tile.length,)
    return {
        "name": tile.name,
        "space": "register",
        "dtype": tile.dtype.name,
        "shape": shape,
        "registers": tile.declared(),
    }
