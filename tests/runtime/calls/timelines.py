"""Timelines that a test makes up."""

from __future__ import annotations

from distxla.runtime.calls.critical_path import Piece
from distxla.runtime.calls.timeline import Slice, Timeline, Track

MS = 1e6


def made(count: int, calls: int = 2, *, steps: bool = True) -> Timeline:
    """Calls of 10 ms with a second between two: a device computes for 1 to 4 ms, then all of them meet at 5 ms."""
    tracks = [Track("calls", "driver")]
    tracks += [Track(f"device {d} (process {1000 + d})", f"host 10.0.0.{d // 64 + 1}") for d in range(count)]
    slices, path = [], []
    for call in range(calls):
        zero = 5e9 + call * 1e9
        slices.append(Slice(0, f"call {call + 1}", "call", zero, zero + 10 * MS))
        slowest = count - 1
        for d in range(count):
            busy = 1 + 3 * d / max(1, slowest)
            slices.append(Slice(d + 1, "jit_train_step", "run", zero, zero + 10 * MS, {"run": call + 1}))
            begin = zero + busy * MS
            if steps:
                slices.append(Slice(d + 1, "fusion.9", "kernel", zero, begin, {"opcode": "fusion"}))
                slices.append(Slice(d + 1, "fusion.10", "kernel", zero + 6 * MS, zero + 10 * MS, {"opcode": "fusion"}))
            details = {"opcode": "all-reduce", "round": call + 1, "bytes": 4096, "source": "model.py:47 in <f>"}
            slices.append(Slice(d + 1, "all-reduce.17", "collective", begin, zero + 6 * MS, details))
            if d != slowest:
                slices.append(Slice(d + 1, f"wait for device {slowest}", "wait", begin, zero + 5 * MS))
        path += [Piece(slowest, zero, zero + 5 * MS), Piece(0, zero + 5 * MS, zero + 10 * MS)]
    return Timeline(tracks, slices, path=path)
