"""Machine code of the plugin's own functions, kept in the cache: each process would have LLVM make it again, for 0.15 s
of processor time."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import llvmlite
from llvmlite import binding

from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.errors import DistxlaError


def loaded(text: str, addresses: Mapping[str, int]) -> Any:
    """An execution engine with the functions of an LLVM module, of which the code lives as long.

    text: the module, the same in every process: what is not known before one runs is declared in it, external, and has
    its address here. The module must be right: LLVM ends the process otherwise.
    """
    for name, address in addresses.items():
        binding.add_symbol(name, address)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target.create_target_machine(opt=2))
    engine.add_object_file(binding.ObjectFileRef.from_data(_object(text, target)))
    engine.finalize_object()
    return engine


def _object(text: str, target: Any) -> bytes:
    """The text as object code, from the cache where it is there."""
    described = f"the plugin's functions, llvmlite {llvmlite.__version__}, {target.triple}\n{text}"
    key = hashlib.sha256(described.encode()).hexdigest()
    folder: CacheFolder | None = None
    with contextlib.suppress(DistxlaError):  # told to the first program that is compiled
        folder = CacheFolder(cache_folder(), cache_limit())
    found = None if folder is None else folder.read(key)
    if found is None:
        binding.initialize_native_asmparser()  # instructions to spin
        parsed = binding.parse_assembly(text)  # optimising it would take longer than it gains
        parsed.verify()
        machine = target.create_target_machine(opt=2, jit=True)  # what it calls may lie anywhere
        parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
        found = bytes(machine.emit_object(parsed))
        if folder is not None:
            folder.write(key, found)
    return found


__all__ = ["loaded"]
