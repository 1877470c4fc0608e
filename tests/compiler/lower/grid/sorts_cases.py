"""What test_sorts.py shares with other tests."""

from __future__ import annotations

# comparators of an array of KIND and of s32 places; whether it has keys, and the launches for 64 + 1 elements of a line
COMPARATORS = {
    "ascending": "ROOT r = pred[] compare(a, b), direction=LT",
    "descending": "ROOT r = pred[] compare(b, a), direction=LT",
    "two keys": """less = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=GT
  tie = pred[] and(same, first)
  ROOT r = pred[] or(less, tie)""",
}

WITHOUT_KEYS = {
    "not after": "after = pred[] compare(a, b), direction=GE  ROOT r = pred[] not(after)",
    "not before": "after = pred[] compare(a, b), direction=GT  ROOT r = pred[] not(after)",  # equal ones contradict
    "always": "ROOT r = pred[] constant(true)",
    "nonsense": """x = KIND[] multiply(a, a)  y = KIND[] multiply(b, b)  c = pred[] compare(a, y), direction=LT
  d = pred[] compare(b, x), direction=LT  ROOT r = pred[] xor(c, d)""",
}


def sort_text(comparator: str, kind: str, dims: tuple[int, ...], axis: int) -> str:
    sizes = ",".join(map(str, dims))
    return f"""HloModule sorting
before {{
  a = KIND[] parameter(0)  b = KIND[] parameter(1)
  i = s32[] parameter(2)  j = s32[] parameter(3)
  {comparator}
}}
ENTRY main {{
  x = KIND[{sizes}] parameter(0)
  p = s32[{sizes}] parameter(1)
  ROOT r = (KIND[{sizes}], s32[{sizes}]) sort(x, p), dimensions={{{axis}}}, to_apply=before
}}
""".replace("KIND", kind)
