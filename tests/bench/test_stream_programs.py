"""The programs of the table of streams do what they are timed for."""

from __future__ import annotations

import numpy as np
import pytest

from bench.streams import KINDS, program
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.oracle.streams import Streams
from distxla.text.parser import parse_module
from tests.executable import require_executable


@pytest.mark.parametrize("kind", KINDS)
def test_one_item_a_trip(kind: str) -> None:
    module = parse_module(program(kind, 3))
    verify_module(module)
    require_executable(module)
    streams, value = Streams(fed=False), np.array([1, 2, 3], np.float32)
    if kind == "infeed":
        streams.infeed(0).put_all(value * n for n in range(5))
    outs = run_programs({0: module}, {0: [value, np.int32(4)]}, Counts(1, 1), streams=streams)
    assert streams.infeed(0).pending == (1 if kind == "infeed" else 0)
    assert len(list(streams.outfeed(0))) == (4 if kind == "outfeed" else 0)
    assert np.array_equal(outs[0][0], value * 3 if kind == "infeed" else value)  # type: ignore[arg-type]
