"""What the watch of the replicas has seen is read while its thread goes on."""

from __future__ import annotations

import subprocess
import sys
import threading

from distxla.runtime.hosts.process_watch import Watch
from distxla.runtime.replica.replica import Identity


def test_what_is_read_does_not_change_while_others_end() -> None:
    processes = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    ended = threading.Semaphore(0)
    told: list[tuple[int, int]] = []

    def on_loss(device: int, pid: int) -> None:
        told.append((device, pid))
        ended.release()

    identities = [Identity(device, "here", process.pid, 0) for device, process in enumerate(processes)]
    watch = Watch(identities, lambda _: "", on_loss)
    try:
        processes[0].kill()
        assert ended.acquire(timeout=60)
        first = watch.lost
        for device, pid in first.items():
            assert (device, pid) == (0, processes[0].pid)
            processes[1].kill()
            assert ended.acquire(timeout=60)
            assert watch.lost.keys() == watch.hows.keys() == {0, 1}
        assert first == {0: processes[0].pid}
        assert told == [(k, processes[k].pid) for k in (0, 1)]
    finally:
        watch.close(0.0)
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
