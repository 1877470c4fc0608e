"""What test_trace.py shares with other tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.runtime import trace_schema

X = np.arange(4, dtype=np.float32)

STUCK = """HloModule stuck, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
yes { x = f32[4] parameter(0) ROOT y = f32[4] all-reduce(x), to_apply=add }
no { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }
ENTRY e { x = f32[4] parameter(0) i = u32[] replica-id() z = u32[] constant(0)
  c = pred[] compare(i, z), direction=EQ
  w = f32[4] all-reduce(x), to_apply=add
  ROOT r = f32[4] conditional(c, w, w), true_computation=yes, false_computation=no }
"""


def slices(document: dict[str, Any], device: int, category: str) -> list[dict[str, Any]]:
    """Of a device, in order."""
    rows = trace_schema.by_phase(document)["X"]
    return [row for row in rows if row["tid"] == device + 2 and row["cat"] == category]
