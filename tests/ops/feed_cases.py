"""What test_feed.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.oracle.streams import Streams as ReferenceStreams
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices
from tests.executable import require_executable

Array = np.ndarray[Any, Any]

Feed = Callable[[Any], None]


def parsed(text: str) -> Module:
    module = parse_module(text, "feed.hlo")
    verify_module(module)
    require_executable(module)
    return module


def compiled(text: str, args: Sequence[Any], feed: Feed) -> tuple[list[Array], Any]:
    devices = Devices(compile_module(parsed(text), Counts(1, 1)))
    try:
        feed(devices.streams)
        (outs,) = devices([args])
        return outs, devices.streams
    finally:
        devices.close()


def evaluated(text: str, args: Sequence[Any], feed: Feed) -> tuple[list[Array], Any]:
    streams = ReferenceStreams(fed=False)
    feed(streams)
    outs = run_programs({0: parsed(text)}, {0: args}, Counts(1, 1), streams=streams)
    return [out for out in outs[0] if out is not None], streams


def taken(streams: Any, count: int, channel: int | None = None) -> list[Any]:
    """The items that came out, which are `count`."""
    found = [streams.outfeed(0, channel).get(0) for _ in range(count)]
    assert streams.outfeed(0, channel).pending == 0
    return found


def same(a: Any, b: Any) -> bool:
    """Nested alike, with the same types, sizes and bits."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
