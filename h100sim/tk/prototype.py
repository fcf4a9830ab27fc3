"""Templates of whole kernels, as ThunderKittens' ``prototype``: the pipeline is written once, the work is handed in.

:func:`lcf` is load, compute, finish: a producer warpgroup fills a ring of input blocks, consumer warpgroups compute on
them and finish a task at its end. :func:`lcsf` adds a ring of output blocks that the producer's second warp stores. The
consumers are the first warpgroups and the producer is the last, as in ThunderKittens. Here one elected thread executes
``load`` (and one ``store``), and each consumer warpgroup arrives once at a semaphore.

Every function is given ``args``, a namespace: ``task_iter`` (tasks that this CTA has begun, from 0), ``num_iters`` (set
by ``common_setup``; below 0 ends the CTA), ``iter``, ``input`` with ``inputs_arrived`` (load) or ``inputs_finished``
(compute), ``output`` with ``outputs_arrived`` (compute) or ``outputs_finished`` (store), ``finish`` with
``finish_finished``, ``scratch``, ``consumer`` (rank of the consumer warpgroup) and ``state`` (what ``setup`` returned).
A function arrives at the semaphore it is given: a load by ``tk.tma.expect``, the others by ``tk.warpgroup.arrive`` or
``tk.arrive``.

Shared memory holds scratch, input blocks, output blocks, each padded to 1024 bytes, then the finish block. Where that is
too much, the finish block lies over the last input blocks, and the producer fills those of the next task only when
``finish_finished`` says that the last one is done with it. Spec: ThunderKittens 2.0 (commit 0b55588d), ``prototype/lcf``,
``prototype/lcsf``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from . import warpgroup
from .builder import MAX_SHARED_BYTES, current, require_scope, usage
from .choices import maximum, minimum
from .control import elect, range_, warpgroups, warps, while_
from .scalars import Int, Scalar, Var
from .semaphores import (
    Semaphore,
    fence_mbarrier_init,
    get_phasebit,
    init_semaphore,
    phasebits,
    semaphore,
    semaphores,
    sync,
    sync_at,
    update_phasebit,
    wait,
)
from .tiles import SharedAddress, shared_base
from .tma import store_async_wait

_ALIGN = 1024
#: Spec: ThunderKittens 2.0: the named barrier of all consumers.
_CONSUMERS_BARRIER = 14
#: Phase bits of a ring: half 0 of a word for stages that fill, half 1 for those that empty.
_MOST_STAGES = 16

Block = Callable[[], dict[str, Any]]
Work = Callable[[SimpleNamespace], Any]


class _Blocks:
    """Equal blocks of tiles in shared memory, ``stride`` bytes apart; :meth:`place` says where."""

    def __init__(self, name: str, make: Block | None):
        builder = current()
        before, known = builder.shared_bytes, len(builder.shared_tiles)
        builder.shared_bytes = 0
        self.fields = make() if make is not None else {}
        size, builder.shared_bytes = builder.shared_bytes, before
        made = builder.shared_tiles[known:]
        del builder.shared_tiles[known:]
        builder.forget(made)
        if not isinstance(self.fields, dict) or any(x not in made for x in self.fields.values()):
            raise usage(f"{name} must return a dict of the shared tiles and vectors that it makes, by name")
        self.name, self.stride, self.start = name, -(-size // _ALIGN) * _ALIGN, 0
        self.roots = self.fields

    def place(self, count: int, start: int | None = None) -> _Blocks:
        """Give ``count`` blocks their place, at ``start`` or after what there is. Raises UsageError if it is too much."""
        builder = current()
        if start is None:
            start = builder.allocate(f"{count} of {self.name}", self.stride * count, _ALIGN)
        self.start = start
        builder.shared_bytes = max(builder.shared_bytes, start + self.stride * count)
        for stage in reversed(range(count)):
            self.roots = {
                field: self._moved(tile, SharedAddress(shared_base(), stage * self.stride)) for field, tile in self.fields.items()
            }
            for field, tile in self.roots.items():
                builder.shared_tiles.append(tile)
                builder.watch(tile, f"{field}_{stage}" if count > 1 else field)
        return self

    def at(self, stage: Scalar) -> SimpleNamespace:
        """Return the tiles of a block."""
        base = SharedAddress(shared_base()).plus(stage, self.stride)
        return SimpleNamespace(
            **{field: replace(self._moved(tile, base), root=self.roots[field]) for field, tile in self.fields.items()}
        )

    def _moved(self, tile: Any, base: SharedAddress) -> Any:
        return replace(tile, address=SharedAddress(base.register, base.offset + self.start + tile.address.offset))


class _Pipe:
    """A ring of blocks and its semaphores: ``arrived`` (full) and ``finished`` (empty)."""

    def __init__(self, name: str, make: Block, stages: int, fillers: int, emptiers: int):
        if not isinstance(stages, int) or not 1 <= stages <= _MOST_STAGES:
            raise usage(f"stages of {name} must be from 1 to {_MOST_STAGES}, not {stages}")
        self.stages = stages
        self.arrived = semaphores(stages, name=f"{name}s_arrived")
        self.finished = semaphores(stages, name=f"{name}s_finished")
        self.arrivals = (self.arrived, fillers), (self.finished, emptiers)
        self.blocks = _Blocks(f"{name}_block", make).place(stages)


class _Position:
    """Where a role stands in a ring: its stage and phase bits. ``half``: 0 waits for full blocks, 1 for empty ones."""

    def __init__(self, pipe: _Pipe, half: int):
        self.pipe, self.half = pipe, half
        self.bits = phasebits()
        self.stage = Var(current().register(), nonnegative=True)
        self.restart()

    def restart(self) -> None:
        self.stage.set(0)

    def wait(self) -> tuple[SimpleNamespace, Semaphore]:
        """Wait for the block at this place; return it and the semaphore to arrive at."""
        pipe = self.pipe
        awaited, told = (pipe.finished, pipe.arrived) if self.half else (pipe.arrived, pipe.finished)
        wait(awaited[self.stage], get_phasebit(self.bits, self.stage, self.half))
        update_phasebit(self.bits, self.stage, self.half)
        return pipe.blocks.at(self.stage), told[self.stage]

    def advance(self) -> None:
        self.stage.set((self.stage + 1) % self.pipe.stages)


def lcf(
    *,
    input_block: Block,
    load: Work,
    compute: Work,
    finish: Work,
    common_setup: Work,
    stages: int,
    consumers: int,
    finish_block: Block | None = None,
    scratch_block: Block | None = None,
    producer_setup: Work | None = None,
    consumer_setup: Work | None = None,
    producer_registers: int | None = None,
    consumer_registers: int | None = None,
) -> None:
    """Write a load-compute-finish kernel of ``consumers`` + 1 warpgroups and ``stages`` input blocks.

    ``*_block`` functions make the tiles of one block and return them by name. For each task of the CTA,
    ``common_setup`` sets ``args.num_iters``; ``load`` is called for each iteration by one thread of the producer,
    ``compute`` by each consumer, then ``finish``. ``*_registers``: registers a thread, None for ThunderKittens' choice.
    """
    template = _Template("tk.lcf", consumers, input_block, stages, scratch_block, finish, producer_registers, consumer_registers)
    safe = template.place_finish(finish_block)
    template.set_up()
    with template.producer(), warps(0), elect():
        _load(template, common_setup, producer_setup, load, safe)
    with template.consumers() as consumer:
        _consume(template, consumer, common_setup, consumer_setup, compute, finish, None)


def lcsf(
    *,
    input_block: Block,
    output_block: Block,
    load: Work,
    compute: Work,
    store: Work,
    common_setup: Work,
    input_stages: int,
    output_stages: int,
    consumers: int,
    finish: Work | None = None,
    finish_block: Block | None = None,
    scratch_block: Block | None = None,
    producer_setup: Work | None = None,
    consumer_setup: Work | None = None,
    producer_registers: int | None = None,
    consumer_registers: int | None = None,
) -> None:
    """Write a load-compute-store-finish kernel: as :func:`lcf`, and ``compute`` also fills an output block, which
    ``store`` copies to global memory in one thread of the producer's second warp. (ThunderKittens' producer warps take
    turns at loading and storing; two warps need not poll.)
    """
    template = _Template(
        "tk.lcsf", consumers, input_block, input_stages, scratch_block, finish, producer_registers, consumer_registers
    )
    outputs = template.add_outputs(output_block, output_stages)
    safe = template.place_finish(finish_block)
    template.set_up()
    with template.producer():
        with warps(0), elect():
            _load(template, common_setup, producer_setup, load, safe)
        with warps(1), elect():
            _store(template, common_setup, store, outputs)
    with template.consumers() as consumer:
        _consume(template, consumer, common_setup, consumer_setup, compute, finish, outputs)


class _Template:
    """What both templates share: shared memory, semaphores, roles."""

    def __init__(
        self, name: str, consumers: int, input_block: Block, stages: int, scratch_block: Block | None, finish: Work | None,
        producer_registers: int | None, consumer_registers: int | None,
    ):  # fmt: skip
        require_scope(name, "cta")
        have = current().warps
        if not isinstance(consumers, int) or not 1 <= consumers <= 4 or have != 4 * (consumers + 1):
            raise usage(
                f"{name} kernel must have warpgroups={consumers} + 1 (consumers from 1 to 4, and a producer), not {have} warps"
            )
        self.count, self.registers = consumers, (producer_registers, consumer_registers)
        self.finish_finished = semaphore(name="finish_finished")
        self.arrivals = [(self.finish_finished, consumers)]
        self.scratch = _Blocks("scratch_block", scratch_block).place(1).at(0)
        self.inputs = _Pipe("input", input_block, stages, fillers=1, emptiers=consumers)
        self.arrivals += self.inputs.arrivals
        self.finish, self.has_finish = SimpleNamespace(), finish is not None

    def add_outputs(self, output_block: Block, stages: int) -> _Pipe:
        outputs = _Pipe("output", output_block, stages, fillers=self.count, emptiers=1)
        self.arrivals += outputs.arrivals
        return outputs

    def place_finish(self, finish_block: Block | None) -> int:
        """Place the finish block; return how many input blocks do not lie under it."""
        inputs, finish = self.inputs.blocks, _Blocks("finish_block", finish_block)
        used = -(-current().shared_bytes // _ALIGN) * _ALIGN
        end = inputs.start + self.inputs.stages * inputs.stride
        start = min(used, (MAX_SHARED_BYTES - finish.stride) // _ALIGN * _ALIGN)
        safe = min((start - inputs.start) // inputs.stride, self.inputs.stages)
        if safe < 1 or (start < used and used > end):
            raise usage(
                f"finish block must leave room for an input block and all output blocks, not take {finish.stride:,} of "
                f"{MAX_SHARED_BYTES - inputs.start:,} bytes"
            )
        self.finish = finish.place(1, start).at(0)
        return safe

    def set_up(self) -> None:
        with elect():
            for sem, count in self.arrivals:
                init_semaphore(sem, count)
            fence_mbarrier_init()
        sync()

    @contextmanager
    def producer(self) -> Iterator[None]:
        with warpgroups(self.count, name="producer"):
            if self.registers[0] is None:
                warpgroup.producer_registers()
            else:
                warpgroup.decrease_registers(self.registers[0])
            yield

    @contextmanager
    def consumers(self) -> Iterator[Int | int]:
        with warpgroups(*range(self.count), name="consumer") as rank:
            if self.registers[1] is None:
                warpgroup.consumer_registers(self.count)
            else:
                warpgroup.increase_registers(self.registers[1])
            yield rank

    def tasks(self, common_setup: Work) -> Iterator[SimpleNamespace]:
        """Loop over the tasks of the CTA; give their ``args``."""
        args = SimpleNamespace(task_iter=Var(current().register()), scratch=self.scratch, state=None)
        args.task_iter.set(0)

        def begins() -> Any:
            common_setup(args)
            if not hasattr(args, "num_iters"):
                raise usage("common_setup must set args.num_iters, not leave it out")
            known = args.num_iters
            args.num_iters = Var(current().register())
            args.num_iters.set(known)
            return args.num_iters >= 0

        for _ in while_(begins):
            yield args
            args.task_iter += 1


def _load(template: _Template, common_setup: Work, setup: Work | None, load: Work, safe: int) -> None:
    """Fill input blocks; those under the finish block only when the last task has finished with it."""
    place = _Position(template.inputs, 1)

    def fill(bounds: tuple[Scalar, ...], args: SimpleNamespace) -> None:
        for iteration in range_(*bounds):
            args.iter = iteration
            args.input, args.inputs_arrived = place.wait()
            load(args)
            place.advance()

    for args in template.tasks(common_setup):
        place.restart()
        args.state = setup(args) if setup is not None else None
        if not template.has_finish:
            fill((args.num_iters,), args)
            continue
        # The last block always comes after the wait: consumers then know that the previous task is finished.
        first = maximum(minimum(args.num_iters - 1, safe), 0)
        fill((first,), args)
        wait(template.finish_finished, (args.task_iter & 1) ^ 1)
        fill((first, args.num_iters), args)


def _consume(
    template: _Template, consumer: Int | int, common_setup: Work, setup: Work | None, compute: Work, finish: Work | None,
    outputs: _Pipe | None,
) -> None:  # fmt: skip
    """Compute on every input block (and fill an output block), then finish the task."""
    place = _Position(template.inputs, 0)
    out = _Position(outputs, 1) if outputs is not None else None
    for args in template.tasks(common_setup):
        args.consumer = consumer
        for position in filter(None, (place, out)):
            position.restart()
        args.state = setup(args) if setup is not None else None
        for iteration in range_(args.num_iters):
            args.iter = iteration
            args.input, args.inputs_finished = place.wait()
            if out is not None:
                args.output, args.outputs_arrived = out.wait()
            compute(args)
            for position in filter(None, (place, out)):
                position.advance()
        if finish is None:
            continue
        # No consumer may write where another one still reads its last input block, or finish a task ahead of another.
        sync_at(_CONSUMERS_BARRIER, 4 * template.count)
        args.finish, args.finish_finished = template.finish, template.finish_finished
        finish(args)


def _store(template: _Template, common_setup: Work, store: Work, outputs: _Pipe) -> None:
    """Store output blocks as they fill; all are in global memory at the end."""
    place = _Position(outputs, 0)
    for args in template.tasks(common_setup):
        place.restart()
        for iteration in range_(args.num_iters):
            args.iter = iteration
            args.output, args.outputs_finished = place.wait()
            store(args)
            place.advance()
    store_async_wait()
