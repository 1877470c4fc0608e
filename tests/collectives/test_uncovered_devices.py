"""Groups of a collective-broadcast need not hold everybody: who is in none gets zeros, as StableHLO has it."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_devices

MODULE = """HloModule m
ENTRY main {{
  a = f32[3] parameter(0)
  b = s8[2,5] parameter(1)
  c = {first} collective-broadcast(a), {attributes}
  d = s8[2,5] collective-broadcast(b), {attributes}
  ROOT t = ({first}, s8[2,5]) tuple(c, d)
}}
"""

# attributes, replicas, partitions, by device the one whose operands it gets (None: nobody's)
CASES = [
    ("replica_groups={{2,1}}", 4, 1, [None, 2, 2, None]),
    ("replica_groups={{2,1}}, channel_id=1", 1, 4, [None, 2, 2, None]),
    ("replica_groups={{3},{1}}", 4, 1, [None, 1, None, 3]),
    ("replica_groups={{1,0}}", 3, 2, [2, 3, 2, 3, None, None]),
    ("replica_groups={{1,0}}, channel_id=2", 2, 3, [1, 1, None, 4, 4, None]),
    ("replica_groups={}", 3, 1, [0, 0, 0]),
]


@pytest.mark.parametrize("executor", ["reference", "compiled"])
@pytest.mark.parametrize(("attributes", "replicas", "partitions", "sources"), CASES, ids=[case[0] for case in CASES])
def test_who_is_in_no_group_gets_zeros(
    attributes: str, replicas: int, partitions: int, sources: list[int | None], executor: str
) -> None:
    module = parse_module(MODULE.format(first="f32[3]", attributes=attributes))
    verify_module(module, replicas, partitions)
    generator = np.random.default_rng(0)
    arguments = [
        [generator.normal(size=3).astype(np.float32), generator.integers(1, 100, (2, 5), np.int8)]
        for _ in range(replicas * partitions)
    ]
    if executor == "reference":
        outs = run_reference(module, arguments, Counts(replicas, partitions))
    else:
        outs = run_devices(compile_module(module, Counts(replicas, partitions)), arguments)
    for device, source in enumerate(sources):
        for leaf in range(2):
            operand = arguments[source or 0][leaf]
            np.testing.assert_array_equal(outs[device][leaf], np.zeros_like(operand) if source is None else operand)
