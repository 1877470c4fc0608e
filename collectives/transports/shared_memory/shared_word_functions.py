"""Emits the functions of collectives/protocols/shared_access.py."""

from __future__ import annotations

from llvmlite import ir

from distxla.collectives.protocols.shared_access import PUBLISH, PUBLISH_LONG, READ, READ_LONG
from distxla.collectives.transports.shared_memory.atomics_builder import I32, I64, POINTER, VOID, AtomicsBuilder


def emit_shared_access(module: ir.Module) -> None:
    """Add all four."""
    for kind, read, publish in ((I32, READ, PUBLISH), (I64, READ_LONG, PUBLISH_LONG)):
        function, atomics = AtomicsBuilder.function(module, read, kind, [POINTER], internal=False, optimised=True)
        found = atomics.builder.load_atomic(function.args[0], "acquire", kind.width // 8, typ=kind)
        atomics.builder.ret(found)
        function, atomics = AtomicsBuilder.function(
            module, publish, VOID, [POINTER, kind], internal=False, optimised=True
        )
        place, value = function.args
        atomics.release(value, place)
        atomics.builder.ret_void()
