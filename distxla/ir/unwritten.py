"""Memory that nothing has written yet: in test runs it holds a marker, so that reading it shows.

With DISTXLA_FILL_UNWRITTEN=1 in the environment compiled programs fill their arena and their results when they begin,
and before each step the bytes that it is to write; the reference and the runtime fill their new arrays. The marker is
0xFFF5 in every 16 bits: a NaN in all IEEE formats and in bf16, -655371 as s32, 4294311925 as u32. Without the variable
nothing is filled, and programs are compiled without it. docs/unwritten_memory.md says more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

VARIABLE = "DISTXLA_FILL_UNWRITTEN"
MARKER = 0xFFF5  # of 16 bits; its bytes in memory are F5 FF

Array = np.ndarray[Any, Any]


@cache  # items of streams and pieces of proxies ask: a look into the environment takes longer than they may
def is_filled() -> bool:
    """Whether memory is filled with the marker before it is used; read from the environment once in a process."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def fill(memory: Any) -> None:
    """Write the marker over a contiguous buffer of whatever type, if that is asked for."""
    if is_filled():
        data = np.frombuffer(memory, np.uint8)
        data[0::2] = MARKER & 0xFF
        data[1::2] = MARKER >> 8


def empty(dims: Sequence[int], dtype: Any) -> Array:
    """np.empty, filled with the marker if that is asked for."""
    array = np.empty(dims, dtype)
    if array.size and is_filled():
        raw = array.reshape(-1).view(np.uint8)
        raw[0::2] = MARKER & 0xFF
        raw[1::2] = MARKER >> 8
    return array


__all__ = ["MARKER", "VARIABLE", "empty", "fill", "is_filled"]
