"""Machine code of compiled functions in files of their own, which LLVM alone loads: a start that finds all it needs compiled
imports no compiler.

A file holds the name of a function, a digest, and an object file that has the function. Whatever the function calls is linked
into it; what Numba's own library offers to compiled code (it is for errors) is found in Numba's extension modules, without the
rest of Numba.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

#: Numba's extension modules with what compiled code may call, and the prefixes of the names there.
_HELPERS = (("_helperlib", "numba_"), ("core/runtime/_nrt_python", "NRT_"))


@cache
def processor() -> str:
    """Return a digest of the processor that code is compiled for, as Numba chooses it."""
    from llvmlite import binding

    chosen = [os.environ.get(name) for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")]
    features = binding.get_host_cpu_features().flatten()
    return hashlib.sha256(f"{binding.get_host_cpu_name()} {features} {chosen}".encode()).hexdigest()[:8]


def save(path: Path, name: str, code: bytes) -> None:
    """Write an object file that has the function ``name``; a reader never sees half a file."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(f"{name} {hashlib.sha256(code).hexdigest()}\n".encode() + code)
    part.replace(path)


def load(path: Path) -> int | None:
    """Return the address of the function in a file, for as long as the process lives; None if there is no such file or it is damaged."""
    try:
        head, _, code = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    name, _, digest = head.decode(errors="replace").rpartition(" ")
    return link(name, code) if digest == hashlib.sha256(code).hexdigest() else None


def link(name: str, code: bytes) -> int:
    """Return the address of the function ``name`` of an object file, for as long as the process lives."""
    from llvmlite import binding

    if any(b"\0" + prefix.encode() in code for _, prefix in _HELPERS):
        _add_helpers()
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine.get_function_address(name)


@cache
def _engine() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine()
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


@cache
def _add_helpers() -> None:
    """Let LLVM find what Numba's library offers to compiled code."""
    from llvmlite import binding

    spec = importlib.util.find_spec("numba")
    assert spec and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    for place, prefix in _HELPERS:
        name = "numba." + place.replace("/", ".")
        files = [root / f"{place}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
        file = next(file for file in files if file.exists())
        loader = importlib.machinery.ExtensionFileLoader(name, str(file))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))  # type: ignore[arg-type]
        loader.exec_module(module)
        for helper, address in module.c_helpers.items():
            binding.add_symbol(prefix + helper, address)
