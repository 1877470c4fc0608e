"""What test_scan.py shares with other tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.ops.program_case import Array, one_instruction

VECTORS = """step {
  x = s32[2] parameter(0)
  c = s32[2] parameter(1)
  a = s32[2] add(x, c)
  b = s32[2] multiply(x, c)
  ROOT r = (s32[2], s32[2]) tuple(b, a)
}"""

TWO_CARRIES = """step {
  x = f32[2] parameter(0)
  y = s32[2] parameter(1)
  c = f32[2] parameter(2)
  n = s32[] parameter(3)
  a = f32[2] multiply(x, c)
  ns = s32[2] broadcast(n), dimensions={}
  b = s32[2] subtract(y, ns)
  one = s32[] constant(1)
  m = s32[] add(n, one)
  ROOT r = (s32[2], s32[2], f32[2], s32[]) tuple(b, ns, a, m)
}"""

NO_CARRY = "step {\n  x = s32[2] parameter(0)\n  ROOT r = s32[2] negate(x)\n}"

NO_ARRAY = "step {\n  c = s32[2] parameter(0)\n  ROOT r = (s32[2], s32[2]) tuple(c, c)\n}"

ONLY_CARRY = "step {\n  x = s32[2] parameter(0)\n  c = s32[2] parameter(1)\n  ROOT r = s32[2] subtract(x, c)\n}"

MATRIX, VECTOR = np.arange(1, 7, dtype=np.int32).reshape(2, 3), np.array([10, -20], np.int32)

FLOATS = np.array([[1.5, 2, -1], [0.5, 3, 4]], np.float32)


def _scan(result: str, operands: Sequence[str], computation: str, carries: int, attributes: str = "") -> str:
    expression = f"{result} scan(@), dimensions={{1}}, num_carries={carries}, to_apply=step{attributes}"
    return one_instruction(expression, operands, computation)


CASES: dict[str, tuple[str, list[Array]]] = {
    **{
        f"vectors{attributes}": (
            _scan("(s32[2,3], s32[2])", ["s32[2,3]", "s32[2]"], VECTORS, 1, attributes),
            [MATRIX, VECTOR],
        )
        for attributes in ("", ", is_reverse=true", ", is_associative=false", ", is_associative=true, is_reverse=true")
    },
    "two carries": (
        _scan("(s32[2,3], s32[2,3], f32[2], s32[])", ["f32[2,3]", "s32[2,3]", "f32[2]", "s32[]"], TWO_CARRIES, 2),
        [FLOATS, MATRIX, np.array([1, -1], np.float32), np.array(5, np.int32)],
    ),
    "no carry": (_scan("s32[2,3]", ["s32[2,3]"], NO_CARRY, 0), [MATRIX]),
    "no array": (_scan("(s32[2,4], s32[2])", ["s32[2]"], NO_ARRAY, 1), [VECTOR]),
    "only a carry": (_scan("s32[2]", ["s32[2,3]", "s32[2]"], ONLY_CARRY, 1), [MATRIX, VECTOR]),
    "no step": (_scan("(s32[2,0], s32[2])", ["s32[2,0]", "s32[2]"], VECTORS, 1), [MATRIX[:, :0], VECTOR]),
    "empty slices": (
        _scan("(s32[0,3], s32[0])", ["s32[0,3]", "s32[0]"], VECTORS.replace("[2]", "[0]"), 1),
        [MATRIX[:0], VECTOR[:0]],
    ),
}
