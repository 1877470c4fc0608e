"""The channels that are measured give what they must."""

from __future__ import annotations

import numpy as np

from bench.channels import AROUND, PING, PONG, loop_text
from distxla import parse
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference


def test_a_value_comes_back() -> None:
    programs = {
        d: parse(loop_text(name, body, 3, 2)) for d, (name, body) in enumerate((("ping", PING), ("pong", PONG)))
    }
    values = [np.full(3, d, np.float32) for d in range(2)]
    outs = run_programs(programs, {d: [values[d], np.int32(3)] for d in range(2)}, Counts(2, 1))
    assert [outs[d][0].tolist() for d in range(2)] == [[0, 0, 0]] * 2  # type: ignore[union-attr]


def test_values_go_round() -> None:
    arguments = [[np.full(2, d, np.float32), np.int32(4)] for d in range(3)]
    outs = run_reference(parse(loop_text("ring", AROUND, 2, 3)), arguments, Counts(3, 1))
    assert [row[0].tolist() for row in outs] == [[2, 2], [0, 0], [1, 1]]  # type: ignore[union-attr]
