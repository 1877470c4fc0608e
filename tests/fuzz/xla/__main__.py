"""`python -m tests.fuzz.xla`: random programs on both sides. See the package's text."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from tests.fuzz.__main__ import FINDINGS, ROOT
from tests.fuzz.xla.both import REGROUPED, text_of
from tests.fuzz.xla.program import RandomProgram
from tests.fuzz.xla.worker import Answer, Worker

APART = 1_000_000  # programs of one --seed from those of the next
MOST_REFUSED = 0.02  # of all programs, by XLA


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 where a program has other results than XLA's, or XLA refuses too many."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.xla", description="Random programs against XLA CPU.")
    parser.add_argument("--modules", type=int, default=1000, help="how many programs (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="other programs for another number (default: 1)")
    parser.add_argument("--replay", type=int, nargs="+", metavar="NUMBER", help="these programs again, with their text")
    parser.add_argument("--target", help="nvptx: kernels for a GPU, emulated unless DISTXLA_GPU_DRIVER says else")
    given = parser.parse_args(arguments)
    begin = time.monotonic()
    seeds = given.replay or range(given.seed * APART, given.seed * APART + given.modules)
    wrong, refused = 0, Counter[str]()
    for seed, answer in answers(seeds, len(os.sched_getaffinity(0)), given.target):
        if given.replay:
            print(RandomProgram(seed).text)
        if answer.refused is not None:
            refused[answer.refused] += 1
            print(f"program {seed}: XLA: {answer.refused}")
        if answer.wrong is not None:
            wrong += 1
            print(f"program {seed}: {answer.wrong}\n  text: {_written(seed, answer.wrong, given.target)}", flush=True)
    seconds = time.monotonic() - begin
    count = len(seeds)
    print(f"{count} programs in {seconds:.0f} s: {wrong} wrong, {refused.total()} refused by XLA")
    return int(wrong > 0 or refused.total() > max(1, MOST_REFUSED * count))


def answers(seeds: Iterable[int], processes: int, target: str | None = None) -> Iterator[tuple[int, Answer]]:
    """Each seed with what became of its program, in so many processes at a time. target: see Worker."""
    with ExitStack() as held, ThreadPoolExecutor(processes) as pool:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(processes):
            idle.put(held.enter_context(Worker(target)))

        def check(seed: int) -> tuple[int, Answer]:
            worker = idle.get()
            try:
                return seed, worker.check(seed)
            finally:
                idle.put(worker)

        yield from pool.map(check, seeds)


def _written(seed: int, wrong: str, target: str | None) -> str:
    options = "" if target is None else f"--target {target} "
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"xla-{seed}.hlo"
    path.write_text(text_of(RandomProgram(seed), is_regrouped=wrong.startswith(REGROUPED)))
    path.with_suffix(".txt").write_text(f"{wrong}\n\npython -m tests.fuzz.xla {options}--replay {seed}\n")
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
