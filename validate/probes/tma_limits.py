"""What does the copy engine do with what the manual leaves undefined?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from h100sim.errors import KernelError
from h100sim.tma import TensorMap

from ..compare import sha256
from .timed_kernel import HEADER

QUESTION = "What do bulk and tensor copies, asynchronous stores and waits do with operands that the manual leaves undefined?"
SETTLES = "h100sim/units: tma_engine, bulk_copies, tensor_copies, async_stores refuse what silicon refuses"

#: Cycles that a kernel waits for an mbarrier before it gives up.
_PATIENCE = 200_000

_START = """    .shared .align 1024 .b8 memory[8192]; .shared .align 8 .b64 barrier; .shared .align 128 .b8 image[128];
    .reg .pred %p, %q, %done; .reg .b16 %mask; .reg .b32 %t, %s, %b, %k, %w, %rank, %far, %far_b, %at, %one, %zero, %count;
    .reg .b64 %in, %out, %map, %o, %state, %start, %now, %wide, %bad;
    mov.u32 %t, %tid.x; mov.u32 %s, memory; mov.u32 %b, barrier; mov.u32 %one, 1; mov.u32 %zero, 0; mov.u32 %rank, %cluster_ctarank;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;
    mov.u64 %map, map; cvta.param.u64 %map, %map; mov.u64 %bad, 4096;
    mul.wide.u32 %o, %rank, 2048; add.s64 %out, %out, %o;
    setp.eq.u32 %q, %t, 0; mov.u32 %k, %t;
FILL:
    mad.lo.u32 %at, %k, 4, %s; xor.b32 %w, %k, 0xABCD0000; st.shared.b32 [%at], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %p, %k, 2048; @%p bra FILL;
    @%q mbarrier.init.shared::cta.b64 [%b], 1;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; bar.sync 0;
"""
_MEET = "    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
_WAIT = f"""    mov.u32 %count, 0; mov.u64 %start, %clock64;
WAIT:
    mbarrier.test_wait.parity.shared::cta.b64 %done, [%b], 0; @%done bra SEEN;
    mov.u64 %now, %clock64; sub.s64 %now, %now, %start; setp.lt.u64 %p, %now, {_PATIENCE}; @%p bra WAIT;
    bra WRITE;
SEEN:
    mov.u32 %count, 1;
WRITE:
    @%q st.global.b32 [%out], %count;
    mov.u32 %k, %t;
BACK:
    mad.lo.u32 %at, %k, 4, %s; ld.shared.b32 %w, [%at]; mul.wide.u32 %o, %k, 4; add.s64 %o, %out, %o;
    setp.ne.u32 %p, %k, 0; @%p st.global.b32 [%o], %w;
    add.u32 %k, %k, 32; setp.lt.u32 %p, %k, 512; @%p bra BACK;
"""
_EXPECT = "@%q mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%b], {bytes};\n"
_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor.4d.shared::cluster.global"
_BYTES = "mbarrier::complete_tx::bytes"
#: The coordinates of the first box.
_ORIGIN = "{%zero, %zero, %zero, %zero}"
_FAR = "    mapa.shared::cluster.u32 %far, %s, %one; mapa.shared::cluster.u32 %far_b, %b, %one;\n"
#: The opcodes of what completes on an mbarrier.
_STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32"
_ADD = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
_BETWEEN = "shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
_FIRST = "    setp.eq.and.u32 %p, %rank, 0, %q;\n"


def _alone(text: str, expect: int | None = 256) -> str:
    return _START + ("" if expect is None else "    " + _EXPECT.format(bytes=expect)) + f"    {text}\n" + _WAIT


def _pair(text: str, expect: int = 256) -> str:
    """CTA 0 of two acts, each waits for its own mbarrier; both expect bytes."""
    return _START + "    " + _EXPECT.format(bytes=expect) + _MEET + _FAR + _FIRST + f"    {text}\n" + _WAIT + _MEET


def _wait_with(parity: int) -> str:
    """The one arrival that the mbarrier is for happens if a wait for a parity passes while the mbarrier is fresh."""
    test = f"mov.u32 %w, {parity}; mbarrier.test_wait.parity.shared::cta.b64 %done, [%b], %w; and.pred %p, %q, %done;"
    return _alone(f"{test} @%p mbarrier.arrive.shared::cta.b64 %state, [%b];", None)


#: Name -> (CTAs of the cluster, kernel body, kind of tensor map).
QUESTIONS: dict[str, tuple[int, str, str]] = {
    "bulk load, mbarrier in another CTA": (2, _pair(f"@%p {_LOAD} [%s], [%in], 256, [%far_b];"), ""),
    "bulk load to another CTA, own mbarrier": (2, _pair(f"@%p {_LOAD} [%far], [%in], 256, [%b];"), ""),
    "bulk load to another CTA, mbarrier there": (2, _pair(f"@%p {_LOAD} [%far], [%in], 256, [%far_b];"), ""),
    "multicast to a CTA that is not there": (
        2, _pair(f"mov.u16 %mask, 5; @%p {_LOAD}.multicast::cluster [%s], [%in], 256, [%b], %mask;"), ""),
    "multicast to nobody": (2, _pair(f"mov.u16 %mask, 0; @%p {_LOAD}.multicast::cluster [%s], [%in], 256, [%b], %mask;"), ""),
    "multicast to the other CTA alone": (
        2, _pair(f"mov.u16 %mask, 2; @%p {_LOAD}.multicast::cluster [%s], [%in], 256, [%b], %mask;"), ""),
    "bulk load of no bytes": (1, _alone(f"@%q {_LOAD} [%s], [%in], 0, [%b];", 0), ""),
    "bulk load of 24 bytes": (1, _alone(f"mov.u32 %w, 24; @%q {_LOAD} [%s], [%in], %w, [%b];", 16), ""),
    "bulk load to a misaligned address": (1, _alone(f"add.u32 %s, %s, 8; @%q {_LOAD} [%s], [%in], 256, [%b];"), ""),
    "bulk load from a misaligned address": (1, _alone(f"add.u64 %in, %in, 8; @%q {_LOAD} [%s], [%in], 256, [%b];"), ""),
    "bulk load from memory that is not there": (1, _alone(f"@%q {_LOAD} [%s], [%bad], 256, [%b];"), ""),
    "bulk prefetch of memory that is not there": (1, _alone("@%q cp.async.bulk.prefetch.L2.global [%bad], 256;", 0), ""),
    "bulk reduction to the own CTA": (
        2, _pair(f"@%p cp.reduce.async.bulk.{_BETWEEN}.add.u32 [%s], [%s], 256, [%b];"), ""),
    "bulk copy to the own CTA": (
        2, _pair(f"add.u32 %far, %s, 1024; @%p cp.async.bulk.{_BETWEEN} "
                 "[%far], [%s], 256, [%b];"), ""),
    "st.async to the own CTA of a cluster": (
        2, _pair(f"mov.u32 %w, 77; @%p {_STORE} [%s+4], %w, [%b];", 4), ""),
    "st.async without a cluster": (
        1, _alone(f"mov.u32 %w, 77; @%q {_STORE} [%s+4], %w, [%b];", 4), ""),
    "red.async to the own CTA of a cluster": (
        2, _pair(f"mov.u32 %w, 77; @%p {_ADD} [%s+4], %w, [%b];", 4),
        ""),
    "st.async, mbarrier in another CTA": (
        2, _pair(f"mov.u32 %w, 77; @%p {_STORE} [%s+4], %w, [%far_b];", 4), ""),
    "st.async to a misaligned address": (
        2, _pair(f"mov.u32 %w, 77; @%p {_STORE} [%far+2], %w, [%far_b];", 4), ""),
    **{f"wait with parity {parity}": (1, _wait_with(parity), "") for parity in (0, 1, 2, 3, 0xFFFFFFFE, 0xFFFFFFFF)},
    "tile instruction, im2col map": (
        1, _alone(f"@%q {_TENSOR}.tile.{_BYTES} [%s], [%map, {_ORIGIN}], [%b];", 1024), "im2col"),
    "im2col instruction, tiled map": (
        1, _alone(f"mov.u16 %mask, 0; @%q {_TENSOR}.im2col.{_BYTES} [%s], [%map, {_ORIGIN}], [%b], "
                  "{%mask, %mask};", 1024), "tile"),
    "tile instruction of another rank": (
        1, _alone("@%q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                  "[%s], [%map, {%zero, %zero}], [%b];",
                  1024), "tile"),
    "map in shared memory": (
        1, _alone("mov.u64 %wide, image; cvta.shared.u64 %wide, %wide; "
                  f"@%q {_TENSOR}.tile.{_BYTES} [%s], [%wide, {_ORIGIN}], [%b];", 1024), "tile"),
    "tensor prefetch of memory that is not there": (
        1, _alone("@%q cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%map, {%zero, %zero, %zero, %zero}];", 0), "nowhere"),
    "tensor load of memory that is not there": (
        1, _alone(f"@%q {_TENSOR}.tile.{_BYTES} [%s], [%map, {_ORIGIN}], [%b];", 1024), "nowhere"),
    "tiled store, im2col map": (
        1, _alone("@%q cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%map, {%zero, %zero, %zero, %zero}], [%s]; "
                  "@%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;", 0), "im2col"),
    "im2col store, tiled map": (
        1, _alone(f"@%q cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%map, {_ORIGIN}], [%s]; "
                  "@%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;", 0), "tile"),
}  # fmt: skip


def kernel(name: str) -> str:
    """Return ``probe(map, in, out)``: out gets, for each CTA, whether its mbarrier completed, and its shared memory."""
    ctas, body, _ = QUESTIONS[name]
    cluster = f".reqnctapercluster {ctas}, 1, 1\n" if ctas > 1 else ""
    head = ".visible .entry probe(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)\n.reqntid 32, 1, 1\n"
    return f"{HEADER}{head}{cluster}{{\n{body}    ret;\n}}\n"


def tensor_map(kind: str, address: int) -> Any:
    """Return a map of (2, 8, 8, 32) u32 whose boxes have 1024 bytes, or 128 zero bytes."""
    dims, strides = [32, 8, 8, 2], [128, 1024, 8192]
    if kind == "im2col":
        return TensorMap.im2col("u32", address, dims, strides, [0, 0], [0, 0], 32, 8)
    if kind:
        return TensorMap.tiled("u32", 4096 if kind == "nowhere" else address, dims, strides, [32, 8, 1, 1])
    return bytes(128)


def answer(name: str, launch: Callable[..., Any], address_of: Callable[[np.ndarray], int], memory: Any) -> dict[str, Any]:
    """Return what happened: an error, or which mbarriers completed and what shared and global memory hold."""
    ctas, _, kind = QUESTIONS[name]
    source = np.arange(4096, dtype=np.uint32) * np.uint32(2654435761)
    out = np.zeros((2, 512), np.uint32)
    try:
        launch(kernel(name), [tensor_map(kind, address_of(source)), source, out], ctas, memory)
    except KernelError as error:
        return {"error": type(error).__name__}
    found: dict[str, Any] = {"completed": out[:ctas, 0].tolist(), "shared": sha256(out[:ctas, 1:].copy())[:16]}
    if "store" in name:
        found["global"] = sha256(source)[:16]
    return found


def on_gpu(name: str) -> dict[str, Any]:
    """Ask one question of the GPU of this process, which an error makes useless."""
    from .. import gpu

    memory = gpu.Memory()

    def launch(text: str, args: list[Any], ctas: int, memory: Any) -> None:
        gpu.launch(text, "probe", (ctas, 1, 1), (32, 1, 1), args, memory=memory)

    return answer(name, launch, memory.address_of, memory)


def here(name: str) -> dict[str, Any]:
    """Ask the simulator."""
    import h100sim

    device = h100sim.Device("h200-sxm")
    held: list[tuple[np.ndarray, Any]] = []

    def address_of(array: np.ndarray) -> int:
        held.append((array, device.asarray(array)))
        return held[-1][1].address

    def launch(text: str, args: list[Any], ctas: int, memory: Any) -> None:
        function = h100sim.RawModule(code=text).get_function("probe")
        given = [next((buffer for array, buffer in held if array is a), a) for a in args]
        function(ctas, 32, given, device=device, checks="off")
        for array, buffer in held:
            array[...] = buffer.numpy()

    return answer(name, launch, address_of, None)


def measure(launch: Callable[..., Any]) -> dict[str, Any]:
    """Return question -> what happened. On a GPU each is asked in a process of its own."""
    if launch.__module__ != "validate.gpu":
        return {name: here(name) for name in QUESTIONS}
    found = {}
    for name in QUESTIONS:
        command = [sys.executable, "-m", __name__, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        found[name] = json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-200:]}
    return found


if __name__ == "__main__":
    print(json.dumps(on_gpu(sys.argv[1])))
