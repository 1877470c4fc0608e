"""The process above all processes of an embedded Ray: when the driver is gone, however it went, so is everything else.

Run as `python -I -S supervisor.py`, with nothing but the standard library. One JSON object a line on standard input:

    {"directory": PATH}                         remove this directory at the end
    {"command": [...], "environment": {...}}    start a process; answered by one line: its pid

At the end of standard input, or when its parent ends, it kills every descendant, removes the directory and exits. It is
the subreaper of its descendants, so none of them can leave it by outliving its own parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def descendants() -> list[int]:
    """Pids below this process, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry))
    found = [os.getpid()]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def kill_descendants(seconds: float = 10.0) -> None:
    """SIGKILL until nobody is left; a process that does not die within `seconds` hangs in the kernel."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:
            return
        time.sleep(0.005)


def start(request: dict[str, object]) -> int:
    """Start one process, silent, that dies with this one."""
    process = subprocess.Popen(
        request["command"],  # type: ignore[call-overload]
        env=request["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    process.returncode = 0  # reaped here, by number
    return int(process.pid)


def main() -> None:
    directory: str | None = None
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.close(0))
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(os.pidfd_open(os.getppid()), select.POLLIN)
    pending = b""
    try:
        while True:
            ready = poll.poll(1000)
            if any(fd != 0 for fd, _ in ready):
                return  # the driver is gone
            try:
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    continue
            except ChildProcessError:
                pass
            if not ready:
                continue
            received = os.read(0, 1 << 16)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                request = json.loads(line)
                directory = request.get("directory", directory)
                if "command" in request:
                    print(start(request), flush=True)
    except OSError:
        return
    finally:
        kill_descendants()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
