"""Clusters of one process, one after another, leave no descriptor open but those that Ray is known to keep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLUSTERS = 4  # after a first one, which opens descriptors that stay open once a process
DRIVER = """
import collections, json, os, re, socket, sys, threading
import numpy as np
import distxla

STEP = distxla.parse('''HloModule m, replica_count=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add }
''')
FEEDS = distxla.parse('''HloModule f, replica_count=2
ENTRY e { t = token[] after-all()
 i = (f32[2], token[]) infeed(t)
 x = f32[2] get-tuple-element(i), index=0
 u = token[] get-tuple-element(i), index=1
 o = token[] outfeed(x, u), outfeed_shape=f32[2]
 ROOT r = f32[2] copy(x) }
''')
def kind(number):
    target = os.readlink(f"/proc/self/fd/{number}")
    if target.startswith("socket:"):
        with socket.socket(fileno=os.dup(int(number))) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6):
                state = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
                return "Ray: a closed connection" if state in (7, 8) else "TCP"  # TCP_CLOSE, TCP_CLOSE_WAIT
            return found.family.name
    if re.search(r"/session/logs/|/s/logs/", target):
        return "Ray: a log"
    return re.sub(r"[0-9]+", "N", target)

def found():
    kinds = collections.Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            kinds[kind(number)] += 1
        except OSError:
            continue
    return kinds

def use(cluster, path):
    step = cluster.compile(STEP)
    with cluster.trace() as trace:
        step([np.ones(4, np.float32)])
    trace.write(path)
    feeds = cluster.compile(FEEDS)
    for device in range(2):
        cluster.infeed(device).put(np.zeros(2, np.float32))
    feeds()
    for device in range(2):
        cluster.outfeed(device).get()

def main():
    before = None
    for count in range(1 + {clusters}):
        with distxla.Cluster(2) as cluster:
            use(cluster, sys.argv[1])
        before = before or found()
    print(json.dumps([before, found(), threading.active_count()]))

main()
"""


@pytest.mark.exhaustive
def test_descriptors_of_clusters_are_closed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER.replace("{clusters}", str(CLUSTERS)), str(tmp_path / "trace.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    before, after, threads = json.loads(done.stdout)
    grown = {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] > before.get(kind, 0)}
    # Ray's library keeps the connection to each gcs_server that it was joined to, once that has closed it
    assert grown.pop("Ray: a closed connection", 0) <= CLUSTERS
    assert grown == {}
    assert threads == 1
