"""What runs a case of the matrix: the reference, threads over shared memory, the same with delays, a cluster."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import distxla as dx
from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.program.abi import COMMUNICATE_SYMBOL
from distxla.program.artifact import CompiledProgram
from distxla.text.parser import parse_module
from tests.collectives.matrix import Case, Run
from tests.compiler.runner import Devices

ROUTINE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)


class DelayedDevices(Devices):
    """Devices that come late to their rounds: each one's table of routines leads through a wait of its own.

    delay: seconds at most; how long each wait is follows from `seed`.
    """

    def __init__(self, program: CompiledProgram, seed: int, delay: float) -> None:
        super().__init__(program)
        for device, context in enumerate(self.contexts):
            waits = random.Random(f"{seed} {device}")
            routines = []
            for site in program.sites:
                routine = ROUTINE(self.image.address_of(COMMUNICATE_SYMBOL.format(site=site.index)))
                routines.append(ROUTINE(partial(_late, waits, delay, routine)))
            table = (ctypes.c_void_p * max(1, len(routines)))(*[ctypes.cast(r, ctypes.c_void_p) for r in routines])
            self.keep += [routines, table]
            context.communicate = ctypes.addressof(table)


def _late(waits: random.Random, delay: float, routine: Any, *arguments: Any) -> int:
    time.sleep(waits.random() ** 3 * delay)
    return int(routine(*arguments))


def by_reference(case: Case) -> Sequence[Sequence[Any]]:
    module = parse_module(case.text)
    verify_module(module, *case.counts)
    return run_reference(module, case.args, Counts(case.counts[0], case.counts[1]))


def by_threads(case: Case) -> Sequence[Sequence[Any]]:
    """Native code in threads of this process, over memory that all of them see."""
    return _natively(case, Devices)


def by_late_threads(seed: int, delay: float = 0.003) -> Run:
    """The same with random delays before every round, each device its own."""
    return partial(_natively, make=partial(DelayedDevices, seed=seed, delay=delay))


@lru_cache(maxsize=1)  # a case is run by several executors, one after the other
def _compiled(text: str, replicas: int, partitions: int) -> CompiledProgram:
    module = parse_module(text)
    verify_module(module, replicas, partitions)
    return compile_module(module, Counts(replicas, partitions))


def _natively(case: Case, make: Any) -> Sequence[Sequence[Any]]:
    devices = make(_compiled(case.text, *case.counts))
    try:
        outs: Sequence[Sequence[Any]] = devices(case.args)
        return [[array.copy() for array in row] for row in outs]
    finally:
        devices.close()


def on_cluster(cluster: dx.Cluster) -> Run:
    """Replicas of a cluster, on however many hosts it has; a case must have its counts."""

    def run(case: Case) -> Sequence[Sequence[Any]]:
        step = cluster.compile(parse_module(case.text))
        return [[array.__array__() for array in row] for row in step(case.args)]

    return run
