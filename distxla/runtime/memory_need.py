"""What a program needs of a device's memory, and whether a device has that much: known before anything starts."""

from __future__ import annotations

from distxla.errors import OutOfMemoryError
from distxla.ir.module import Module
from distxla.runtime.byte_counts import amount
from distxla.runtime.memory import memory_bytes


def require_memory(module: Module, temporary_bytes: int = 0, limit: int | None = None) -> None:
    """OutOfMemoryError where one device can't hold the program's arguments, results and temporaries at once.

    temporary_bytes: working memory of a device, where it is known: after planning.  limit: bytes of a device's memory;
    by default what a device of this machine has. The error points at the largest argument or result.
    """
    entry = module.entry_computation
    arguments = sum(parameter.shape.byte_size for parameter in entry.parameters)
    results = entry.root_instruction.shape.byte_size
    limit = memory_bytes() if limit is None else limit
    need = arguments + results + temporary_bytes
    if need <= limit:
        return
    largest = max((*entry.parameters, entry.root_instruction), key=lambda i: i.shape.byte_size)
    parts = {"arguments": arguments, "results": results, "temporaries": temporary_bytes}
    held = ", ".join(f"{amount(size)} of {name}" for name, size in parts.items() if size)
    raise OutOfMemoryError(
        f"{module.name} needs {amount(need)} on each device ({held}); a device has {amount(limit)}",
        module.locate(largest) if temporary_bytes <= largest.shape.byte_size else None,
    )
