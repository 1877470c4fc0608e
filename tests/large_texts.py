"""Texts that are expensive for code that copies, recurses, or compares all pairs."""

from __future__ import annotations

LEVELS = 30
ADDS = 40_000
LEAVES = 100_000

SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
FUNCTION = "{} {{\n  p = f32[4] parameter(0)\n{}}}\n"
TWO_CALLS = """  one = f32[4] call(p), to_apply=INNER
  ROOT two = f32[4] call(one), to_apply=INNER
"""
TWO_CONDITIONALS = """  s = f32[1] slice(p), slice={[0:1]}
  v = f32[] reshape(s)
  z = f32[] constant(0)
  c = pred[] compare(v, z), direction=GT
  one = f32[4] conditional(c, p, p), true_computation=INNER, false_computation=INNER
  ROOT two = f32[4] conditional(c, one, one), true_computation=INNER, false_computation=INNER
"""


def doubling_calls(levels: int = LEVELS, *, innermost: str = "add(p, p)", replicas: int = 1) -> str:
    """Each computation calls the one before twice: 2**levels executions of `innermost`, which may use `sum`."""
    return _nested(TWO_CALLS, levels, innermost, replicas)


def doubling_all_reduces(levels: int = LEVELS) -> str:
    """The same around an all-reduce of two replicas."""
    return doubling_calls(levels, innermost="all-reduce(p), replica_groups={{0,1}}, to_apply=sum", replicas=2)


def doubling_branches(levels: int = LEVELS) -> str:
    """Each computation has two conditionals both of whose branches are the one before."""
    return _nested(TWO_CONDITIONALS, levels, "add(p, p)", 1)


def _nested(body: str, levels: int, innermost: str, replicas: int) -> str:
    """Computations f0 to f`levels`; the body of each names the one before INNER."""
    text = [
        f"HloModule doubling, replica_count={replicas}\n",
        SUM,
        FUNCTION.format("f0", f"  ROOT r = f32[4] {innermost}\n"),
    ]
    text += [FUNCTION.format(f"f{k}", body.replace("INNER", f"f{k - 1}")) for k in range(1, levels + 1)]
    text.append(f"ENTRY e {{\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] call(x), to_apply=f{levels}\n}}\n")
    return "\n".join(text)


def chained_adds(count: int = ADDS) -> str:
    """Each add takes the one before."""
    lines = ["HloModule chain\n", "ENTRY e {", "  x0 = f32[4] parameter(0)", "  y = f32[4] parameter(1)"]
    lines += [f"  {'ROOT ' if k == count else ''}x{k} = f32[4] add(x{k - 1}, y)" for k in range(1, count + 1)]
    return "\n".join([*lines, "}\n"])


def wide_tuple(leaves: int = LEAVES) -> str:
    """A tuple of so many leaves, taken apart and put together again."""
    types = ", ".join(["f32[1]"] * leaves)
    lines = ["HloModule wide\n", "ENTRY e {", f"  t = ({types}) parameter(0)"]
    lines += [f"  e{k} = f32[1] get-tuple-element(t), index={k}" for k in range(leaves)]
    lines.append(f"  ROOT r = ({types}) tuple({', '.join(f'e{k}' for k in range(leaves))})")
    return "\n".join([*lines, "}\n"])


__all__ = [
    "ADDS",
    "LEAVES",
    "LEVELS",
    "chained_adds",
    "doubling_all_reduces",
    "doubling_branches",
    "doubling_calls",
    "wide_tuple",
]
