"""Where the time of a compilation goes, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_STAGES: Final = {
    "passes": "passes",
    "buffers": "plan of the memory",
    "emit": "emitting LLVM IR",
    "parse_llvm": "reading LLVM IR",
    "optimise": "optimising LLVM IR",
    "object": "object code",
    "common": "functions that programs share",
    "link": "linking",
    "kernels": "kernels for GPUs",
}
_IN_ITS_OWN_PROCESS: Final = "compiling"


def rows(phases: Mapping[str, float], stages: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """(name, seconds) of each phase; behind that of compiling, those of the compiler's stages, indented.

    phases: as `time_limit.timed_phases` gives them.  stages: as CompiledProgram.timings has them; none for a program
    from the cache.
    """
    for name, seconds in phases.items():
        yield name, seconds
        if name == _IN_ITS_OWN_PROCESS:
            yield from ((f"  {_STAGES[stage]}", taken) for stage, taken in stages.items())


def line(name: str, seconds: float, phases: Mapping[str, float], stages: Mapping[str, float]) -> str:
    """`jit_f: 61.0 ms: partitioning 4.2, compiling 52.1 (passes 2.0, …)`. seconds: in all."""
    parts = []
    for phase, taken in phases.items():
        inner = [f"{_STAGES[stage]} {1000 * part:.1f}" for stage, part in stages.items()]
        within = f" ({', '.join(inner)})" if inner and phase == _IN_ITS_OWN_PROCESS else ""
        parts.append(f"{phase} {1000 * taken:.1f}{within}")
    return f"{name}: {1000 * seconds:.1f} ms: {', '.join(parts)}"
