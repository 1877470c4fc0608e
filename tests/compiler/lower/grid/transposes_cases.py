"""What test_transposes.py shares with other tests."""

from __future__ import annotations


def transpose_text(kind: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    results = ",".join(str(dims[d]) for d in order)
    return f"""HloModule transposes
ENTRY main {{
  x = {kind}[{",".join(map(str, dims))}] parameter(0)
  ROOT r = {kind}[{results}] transpose(x), dimensions={{{",".join(map(str, order))}}}
}}
"""
