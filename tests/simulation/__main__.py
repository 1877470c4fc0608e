"""`python -m tests.simulation --seeds 10000 --jobs 2`; `python -m tests.simulation --replay 4711` shows one run."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tests.simulation.scenarios import draw, measured, simulate_seed

BATCH = 1000  # seeds for each worker: the simulated processes leave mappings behind, of which the kernel allows 65,530


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--replay", type=int, help="run one seed, and print what happens in it")
    options = parser.parse_args()
    if options.replay is not None:
        print(draw(options.replay))
        outcome = simulate_seed(options.replay, logs=True)
        print("\n".join(outcome.notes))
        print(outcome.complaint or "right", f"(digest {outcome.digest:016x}, {outcome.steps} steps)")
        return bool(outcome.complaint)
    begin, wrong, spent, slowest = time.perf_counter(), 0, 0.0, (0.0, 0)
    seeds = range(options.first, options.first + options.seeds)
    for seed, complaint, seconds, _ in _answers(seeds, options.jobs):
        spent += seconds
        slowest = max(slowest, (seconds, seed))
        if complaint:
            wrong += 1
            print(complaint, flush=True)
    print(
        f"{len(seeds)} seeds, {wrong} wrong, in {time.perf_counter() - begin:.1f} s; "
        f"{spent / len(seeds) * 1e3:.1f} ms of processor time each; the slowest, {slowest[1]}, took {slowest[0]:.2f} s"
    )
    return bool(wrong)


def _answers(seeds: range, jobs: int) -> Iterator[tuple[int, str, float, int]]:
    """What `measured` gives for each seed, in order. SystemExit where a worker dies: nobody answers for its seeds."""
    context = multiprocessing.get_context("forkserver")
    for begin in range(0, len(seeds), BATCH * jobs):
        batch = seeds[begin : begin + BATCH * jobs]
        missing = list(batch)
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            try:
                for answer in pool.map(measured, batch, chunksize=20):
                    missing.remove(answer[0])
                    yield answer
            except BrokenProcessPool:
                sys.exit(f"a worker died in one of the seeds from {missing[0]} on: run them with --replay")


if __name__ == "__main__":
    sys.exit(main())
