"""`python -m tests.fuzz`: run targets for a time, keep new inputs, replay an input. See the package's text."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.findings import limited_memory, summary
from tests.fuzz.targets import NAMES, load

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
WORK = ROOT / "build" / "fuzz"
FINDINGS = ROOT / "fuzz-findings"
HANG_S = 10
LIMIT_MB = 2048
MOST_DEATHS = 5  # of one target's process, in one run
STILL_RUNNING = 124  # the status of a process that had to be killed, as of timeout(1)
MOST_WORDS = 800  # of a dictionary
START_S = 5  # imports and seeds
LATE_S = 300  # that a process may take beyond its time, on a busy machine
_FROM_FUZZER = re.compile(r"[0-9a-f]{40}")  # names that libFuzzer gives


@dataclass(frozen=True)
class Outcome:
    """Figures of one target's run. failure: why the fuzzer itself did not work, or None."""

    name: str
    runs: int
    new: int
    seconds: float
    failure: str | None


def kept(name: str) -> Path:
    """The folder of the target's inputs in the repository."""
    return CORPUS / name


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 for findings, 2 where the fuzzer is missing or did not work."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Coverage-guided fuzzing.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--seconds", type=int, default=600, help="of all targets together (default: 600)")
    parser.add_argument(
        "--keep", action="store_true", help="minimise new inputs of earlier runs into tests/fuzz/corpus"
    )
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="check these inputs, without the fuzzer")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.targets if name not in NAMES]:
        parser.error(f"no target {unknown[0]!r}; the targets are {', '.join(NAMES)}")
    names = given.targets or list(NAMES)
    if given.replay:
        if len(given.targets) != 1:
            parser.error("--replay takes one target")
        return _replay(names[0], given.replay)
    if importlib.util.find_spec("atheris") is None:
        print("the fuzzer is not installed: pip install -e '.[fuzz]', or make fuzz", file=sys.stderr)
        return 2
    if given.keep:
        return _keep(names)
    return _report(_fuzz(names, given.seconds), before=_findings())


def _replay(name: str, paths: Iterable[str]) -> int:
    target = load(name)
    with limited_memory():
        for path in paths:
            target.check(Path(path).read_bytes())
            print(f"{path}: as promised")
    return 0


def _fuzz(names: Sequence[str], seconds: int) -> Iterable[Outcome]:
    """Several targets at a time, one a processor; each has its share of the time."""
    weights = {name: load(name).weight for name in names}
    workers = min(len(os.sched_getaffinity(0)), len(names))
    unit = workers * seconds / sum(weights.values())
    shares = {name: min(float(seconds), unit * weights[name]) for name in names}
    print(f"fuzzing {', '.join(names)} for {seconds} s; logs and new inputs in {WORK.relative_to(ROOT)}", flush=True)
    with ThreadPoolExecutor(workers) as pool:
        longest_first = sorted(names, key=lambda name: -shares[name])
        yield from pool.map(lambda name: _fuzz_one(name, shares[name]), longest_first)


def _fuzz_one(name: str, seconds: float) -> Outcome:
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    begin, runs, new, deaths = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="distxla-fuzz-") as seeds:
        words = _write_seeds(name, Path(seeds))
        while (left := seconds - (time.monotonic() - begin)) > START_S:
            before = _findings()
            log = WORK / f"{name}.log"
            options = [
                *(f"-max_total_time={int(left - START_S) + 1}", f"-timeout={HANG_S}", f"-rss_limit_mb={LIMIT_MB}"),
                *(f"-artifact_prefix={FINDINGS}/{name}-", "-print_final_stats=1", f"-dict={words}"),
                *(str(folder), *([str(kept(name))] if kept(name).exists() else []), f"{seeds}/inputs"),
            ]
            FINDINGS.mkdir(exist_ok=True)
            status = _child(name, options, log, left + LATE_S)
            counts = dict(re.findall(r"stat::(\w+): +(\d+)", log.read_text(errors="replace")))
            runs += int(counts.get("number_of_executed_units", 0))
            new += int(counts.get("new_units_added", 0))
            if status == 0:
                break
            deaths += 1
            if not any(path.startswith(f"{name}-") for path in _findings() - before):
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                return Outcome(name, runs, new, time.monotonic() - begin, f"status {status}, see {log}:\n{tail}")
            if deaths == MOST_DEATHS:
                break
    return Outcome(name, runs, new, time.monotonic() - begin, None)


def _write_seeds(name: str, folder: Path) -> Path:
    """The target's seeds as files in `folder`/inputs; the file of words that stand in them."""
    inputs, words = folder / "inputs", set()
    inputs.mkdir()
    for number, data in enumerate(load(name).seeds()):
        (inputs / f"{number}").write_bytes(data)
        words.update(re.findall(rb"[a-z][a-z0-9_-]{2,}=?", data))
    listed = sorted(words)[:MOST_WORDS]
    path = folder / "words"
    path.write_text("".join(f'"{word.decode()}"\n' for word in listed) or '"0"\n')
    return path


def _child(name: str, options: Sequence[str], log: Path, limit: float) -> int:
    command = [sys.executable, "-m", "tests.fuzz.child", name, str(FINDINGS), *options]
    # libFuzzer ends its process without Python's own end, so files of a target are removed here
    with log.open("wb") as file, tempfile.TemporaryDirectory(prefix="distxla-fuzz-") as place:
        environment = os.environ | {"TMPDIR": place}
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=file, stderr=file, timeout=limit, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return STILL_RUNNING
        return done.returncode


def _findings() -> set[str]:
    """Names of the inputs in the folder of findings."""
    return {path.name for path in FINDINGS.glob("*") if path.suffix != ".txt"}


def _report(outcomes: Iterable[Outcome], before: set[str]) -> int:
    failed = False
    for one in outcomes:
        print(f"{one.name:10} {one.runs:10,} runs, {one.runs / one.seconds:8,.0f} a second, {one.new:6,} new inputs")
        if one.failure is not None:
            failed = True
            print(f"the fuzzer of {one.name} failed: {one.failure}", file=sys.stderr)
    found = sorted(_findings())
    for name in found:
        print(f"finding{'' if name not in before else ' (known)'}: {FINDINGS.relative_to(ROOT) / name}")
        print(summary(FINDINGS / name))
    if not found:
        print("no findings")
    return 2 if failed else 1 if found else 0


def _keep(names: Iterable[str]) -> int:
    """Let corpus/ hold inputs that reach code that the seeds don't; inputs that have a name of their own stay."""
    for name in names:
        folder = kept(name)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="distxla-fuzz-") as place:
            _write_seeds(name, Path(place))
            seeds = Path(place, "inputs")
            begin = {path.name for path in seeds.iterdir()}
            # by lines reached, not by how often: a tenth as many inputs
            options = ["-merge=1", "-use_counters=0", f"-timeout={HANG_S}", f"-rss_limit_mb={LIMIT_MB}"]
            log = WORK / f"{name}.log"
            WORK.mkdir(parents=True, exist_ok=True)
            status = _child(name, [*options, str(seeds), str(folder), str(WORK / name)], log, 3600)
            if status:
                print(f"the corpus of {name} could not be minimised: status {status}, see {log}", file=sys.stderr)
                return 2
            for path in folder.iterdir():
                if _FROM_FUZZER.fullmatch(path.name):
                    path.unlink()
            own = {path.read_bytes() for path in folder.iterdir()}
            for path in seeds.iterdir():
                if path.name not in begin and (data := path.read_bytes()) not in own:
                    shutil.copyfile(path, folder / path.name)
                    own.add(data)
        sizes = [path.stat().st_size for path in folder.iterdir()]
        print(f"{name:10} {len(sizes)} inputs, {sum(sizes):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
