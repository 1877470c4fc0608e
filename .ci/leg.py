"""`python .ci/leg.py [--quiet] FOLDER NAME COMMAND..`: runs a command, and notes how it went for the closing report.

FOLDER/NAME.log gets what it prints, FOLDER/legs.jsonl a line of JSON: its status, seconds of the clock and of
processors, and the machine's load at its end. --quiet: the output goes to the log only, as of a leg beside another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
ORPHANS_S = 1.0  # for the end of processes whose parents have ended: of a fork server, or Ray's
LATE_S = 10.0  # for output after the command's end: of a process that it left behind, which may go on for ever


def main(arguments: list[str]) -> int:
    quiet = arguments[0] == "--quiet"
    folder, name, *command = arguments[quiet:]
    # a process's time is added to the parent that waits for it
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    copier = threading.Thread(target=_copy, args=(process, Path(folder, f"{name}.log"), quiet), daemon=True)
    copier.start()
    status = process.returncode = _wait(process.pid)
    seconds = time.monotonic() - begin
    _wait_for_orphans()
    copier.join(LATE_S)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    noted = {
        "name": name,
        "command": " ".join(command),
        "status": status,
        "seconds": seconds,
        "processor_seconds": spent.ru_utime + spent.ru_stime,
        "circumstances": f"{machine_load()} at its end",
    }
    with open(Path(folder, "legs.jsonl"), "a", encoding="utf-8") as lines:
        lines.write(json.dumps(noted) + "\n")
    return status if status >= 0 else 128 - status


def _wait(pid: int) -> int:
    """Its status; after Ctrl-C, which it gets, too, as well."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            ended, status = os.wait()
            if ended == pid:
                return os.waitstatus_to_exitcode(status)


def _wait_for_orphans() -> None:
    end = time.monotonic() + ORPHANS_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)


def machine_load() -> str:
    """Also what share of the last 10 s something waited for a processor, where the kernel counts it."""
    found = f"load {' '.join(f'{load:.2f}' for load in os.getloadavg())}"
    try:
        # some avg10=1.53 avg60=1.87 avg300=1.73 total=1088168194
        return f"{found}, cpu {Path('/proc/pressure/cpu').read_text().partition(' avg60')[0]}"
    except OSError:
        return found


def _copy(process: subprocess.Popen[bytes], log: Path, quiet: bool) -> None:
    """As it comes, a line or a part of one."""
    assert process.stdout is not None
    with open(log, "wb", buffering=0) as file:
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            file.write(piece)
            if not quiet:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
