"""Says in one line, read from the messages of Ray's servers, which resource they lack when they end or don't start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from distxla.machine.shortages import FILES, MEMORY, PROCESSES, ROOM

_BY_MESSAGE: Final = (
    (r"what\(\): +(?:thread: )?Resource temporarily unavailable", PROCESSES),
    (r"pthread_create failed|Cannot fork|can't start new thread|fork\w*: .*Resource temporarily", PROCESSES),
    (r"std::bad_alloc|Cannot allocate memory|\bMemoryError\b", MEMORY),
    (r"Too many open files", FILES),
    (r"No space left on device", ROOM),
)
_STACK = re.compile(r"\(\+0x|    @ |[Ss]tack ?[Tt]race|\*\*\*|\[0x[0-9a-f]+\]|PC: @")  # lines that do not help a user
_MOST = 8  # lines of a server


def explained(what: str, logs: str) -> str:
    """`what`, and what the messages in a folder say that is missing, in one line; else their first lines."""
    texts = [path.read_text(errors="replace") for path in sorted(Path(logs).glob("*.err"))]
    for pattern, missing in _BY_MESSAGE:
        if any(re.search(pattern, text) for text in texts):
            return f"{what}: {missing}"
    lines = [line for text in texts for line in [x for x in text.splitlines() if not _STACK.search(x)][:_MOST]]
    return "\n".join([what, *("".join(c for c in line[:300] if c.isprintable()) for line in lines)]).strip()


__all__ = ["explained"]
