"""`python -m tests.differ.planted.judge [FAMILY ... or NAME ...] [--types=float32,...]`: `distxla.jax.compare` on the
programs. Prints a JSON object for each, and how many are right: the right twins the same, and bugs at a marked line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

if __name__ == "__main__":  # before JAX is imported; of a process that imports this file nothing changes
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from tests.differ.planted.program import TYPES, Program, load


def judged(program: Program, dtype: str, bug: bool) -> dict[str, Any]:
    """verdict: "right", or what is wrong with the answer."""
    import distxla.jax as dxj

    sharded, unsharded, args = program.build(jax.numpy.dtype(dtype), bug)
    start = time.perf_counter()
    try:
        found = dxj.compare(sharded, unsharded, *args).as_json()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = {"same": None, "error": f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"}
    found["seconds"] = round(time.perf_counter() - start, 1)
    found.pop("relations", None)
    return {"name": program.name, "dtype": dtype, "bug": bug, "verdict": verdict(program, bug, found), **found}


def verdict(program: Program, bug: bool, found: dict[str, Any]) -> str:
    if "error" in found:
        return "error"
    if not bug:
        return "right" if found["same"] else "differs though right"
    if found["same"]:
        return "the same though wrong"
    first = found["first"] or {}
    lines = program.lines()
    if name_of(first.get("source")) in lines:
        return "right"
    return "right by use" if name_of(first.get("use_source")) in lines else f"another line than {sorted(lines)}"


def name_of(source: str | None) -> str:
    return (source or "").rpartition("/")[2]


def main(words: list[str]) -> None:
    types = next((w.partition("=")[2].split(",") for w in words if w.startswith("--types=")), TYPES)
    names = [w for w in words if not w.startswith("--")]
    everything = load()
    chosen = [p for p in everything.values() if not names or {p.name, p.build.__module__.split(".")[-1]} & {*names}]
    rows = []
    for program in chosen:
        for dtype in types:
            for bug in (False, True)[: 1 + program.has_bug]:
                rows.append(judged(program, dtype, bug))
                print(json.dumps(rows[-1]), flush=True)
    right = sum(row["verdict"] == "right" for row in rows)
    print(json.dumps({"right": right, "of": len(rows)}))


if __name__ == "__main__":
    main(sys.argv[1:])
