"""`python -m tests.chaos`: plays cases and prints a table by kind.

Exit status 1 if a case did not end right; each such case prints how to replay it, and leaves a file with all that is
known of it in the folder of --log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.chaos.judgement import Bounds, Verdict, judge
from tests.chaos.log import kept
from tests.chaos.plan import KINDS, draw
from tests.chaos.runner import Runner


def main() -> int:
    options = _options()
    kinds = tuple(k for k, (hosts, _, _) in KINDS.items() if hosts in options.hosts and options.only in k)
    bounds = Bounds(options.lost, options.stopped)
    found: dict[str, list[Verdict]] = defaultdict(list)
    failures = 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as scratch:
        runner = Runner(Path(scratch))
        try:
            for number in options.case or range(options.count):
                case = draw(options.seed, number, kinds)
                story = runner.play(case)
                verdict = judge(story, runner.bits(story), bounds)
                found[case.kind].append(verdict)
                took = "" if verdict.seconds is None else f", noticed after {verdict.seconds:.2f} s"
                wrong = f"; WRONG: {verdict.wrong}" if verdict.wrong else ""
                print(f"{case}: {verdict.outcome}{took}{wrong}", flush=True)
                if verdict.wrong:
                    failures += 1
                    _tell(_replay(options, number), story.messages, kept(options.log, story, verdict))
        finally:
            runner.close()
    _table(found)
    count = sum(map(len, found.values()))
    print(f"{count} cases in {time.monotonic() - begun:.0f} s, {failures} of them wrong")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, action="append", help="only this one; may be given several times")
    parser.add_argument("--only", default="", metavar="WORDS", help="kinds that have these words in them")
    parser.add_argument("--hosts", type=lambda text: [*map(int, text.split(","))], default=[1, 2], metavar="1,2")
    parser.add_argument("--log", type=Path, default=Path("build/chaos"), help="folder for the cases that went wrong")
    parser.add_argument("--lost", type=float, default=2.0, metavar="S", help="from a death to the error")
    parser.add_argument("--stopped", type=float, default=5.0, metavar="S", help="from a stop to a notice of it")
    return parser.parse_args()


def _replay(options: argparse.Namespace, number: int) -> str:
    only = f" --only '{options.only}'" if options.only else ""
    hosts = ",".join(map(str, options.hosts))
    return f"python -m tests.chaos --seed {options.seed} --case {number} --hosts {hosts}{only}"


def _tell(replay: str, messages: str, path: Path) -> None:
    print(f"  replay: {replay}\n  kept in {path}")
    for line in messages.splitlines()[-40:]:
        print(f"  | {line}")


def _table(found: dict[str, list[Verdict]]) -> None:
    print(f"\n{'kind':42} {'cases':>5} {'wrong':>5}  {'longest to notice':>17}  outcomes")
    for kind in KINDS:
        verdicts = found.get(kind, [])
        if not verdicts:
            continue
        longest = max((v.seconds for v in verdicts if v.seconds is not None), default=None)
        noticed = "-" if longest is None else f"{longest:.2f} s"
        wrong = sum(bool(v.wrong) for v in verdicts)
        outcomes = ", ".join(f"{what} {count}" for what, count in Counter(v.outcome for v in verdicts).most_common())
        print(f"{kind:42} {len(verdicts):5} {wrong:5}  {noticed:>17}  {outcomes}")


if __name__ == "__main__":
    sys.exit(main())
