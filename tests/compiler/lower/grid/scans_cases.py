"""What test_scans.py shares with other tests."""

from __future__ import annotations


def windows(opcode: str, kind: str, initial: str, dims: tuple[int, ...], axis: int, *, from_end: bool) -> str:
    sizes, size = ",".join(map(str, dims)), dims[axis]
    pads = ["0_0"] * len(dims)
    pads[axis] = f"0_{size - 1}" if from_end else f"{size - 1}_0"
    window = "x".join(str(size) if d == axis else "1" for d in range(len(dims)))
    return f"""HloModule cumulative
combine {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] {opcode}(a, b) }}
ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  start = {kind}[] constant({initial})
  ROOT r = {kind}[{sizes}] reduce-window(x, start), window={{size={window} pad={"x".join(pads)}}}, to_apply=combine
}}
"""
