"""A driver for the runner: takes cases on stdin, says on stdout how far it has come, both as lines of JSON.

    python -m tests.chaos.driver

Times are of CLOCK_MONOTONIC, which the runner has, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import logging
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

import distxla as dx
from distxla.runtime.cluster import Cluster
from tests.chaos.program import DEVICES, TEXT, WARM_UP, arguments

_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print to stderr, not among the events


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **values}), file=_out, flush=True)


class Notices(logging.Handler):
    """Passes on the library's notices about a run."""

    def emit(self, record: logging.LogRecord) -> None:
        say("notice", text=record.getMessage())


def bits(outs: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(row[0]).tobytes() for row in outs)).hexdigest()


def descriptors() -> dict[str, int]:
    """How many of each kind are open."""
    kinds: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            kinds["memory file" if "memfd:" in target else target.partition(":")[0] if ":" in target else "file"] += 1
    return dict(kinds)


def told(error: BaseException) -> dict[str, Any]:
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    classes = [kind.__name__ for kind in type(error).__mro__]
    return {"error": type(error).__name__, "classes": classes, "text": str(error), "notes": notes}


def play(case: dict[str, Any]) -> None:
    """One case: a new cluster, a run without faults, the run with them, another one if the cluster lives."""
    say("starting")
    module = dx.parse(TEXT.replace("HloModule chaos", f"HloModule {case['name']}"), "chaos.hlo")
    options = {"address": case["address"], "devices_per_host": case["devices_per_host"]} if case["address"] else {}
    with Cluster(DEVICES, inject=case["inject"], **options) as cluster:
        step = cluster.compile(module)
        cluster.wait_started()
        try:
            before = bits(step(arguments()))
            step(arguments(), repeat=WARM_UP)
            repeat = max(WARM_UP, math.ceil(case["seconds"] / (step.run_s / WARM_UP)))
            say("ready", replicas=[pid for _, _, pid in cluster.replicas_info], bits=before, repeat=repeat)
            say("running")
            outs = step(arguments(), repeat=repeat, time_limit=case["time_limit"])
            say("ended", error="", bits=bits(outs), injected=happened(cluster))
        except dx.DistxlaError as error:
            say("ended", **told(error), injected=happened(cluster))
        except KeyboardInterrupt as error:
            say("interrupted", **told(error))
        try:
            say("again", error="", bits=bits(step(arguments(), time_limit=60)))
        except dx.DistxlaError as error:
            say("again", **told(error))
        say("closing")


def happened(cluster: Cluster) -> list[str]:
    return [fault.spec for fault in cluster.injected if fault.happened]


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.getLogger("distxla").addHandler(Notices())
    logging.getLogger("distxla").propagate = False
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # that came too late
            if not (line := sys.stdin.readline()):
                return
            one(json.loads(line))


def one(case: dict[str, Any]) -> None:
    """A case from begin to end, however it ends; the driver goes on."""
    try:
        try:
            play(case)
        except KeyboardInterrupt as error:
            say("interrupted", **told(error))
        except dx.DistxlaError as error:
            say("failed", **told(error))
        threads = [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
        say("closed", descriptors=descriptors(), threads=threads)
    except KeyboardInterrupt:  # in one of the lines above
        say("closed", descriptors=descriptors(), threads=[])


if __name__ == "__main__":
    main()
