"""What a raylet of nodes.py runs for each worker, as `worker.py DEFAULT_WORKER ARGUMENT...`.

Where a process of forks.py serves the raylet, a copy of it becomes the worker; else this process does.
"""

from __future__ import annotations

import os
import select
import sys

FOLDER = "DISTXLA_TEST_FORKS"  # the variable that names the folder of the FIFOs, which are named like their raylets


def main() -> None:
    # raylets leave out Ray's own setup_worker.py where it has no runtime environment to set up, and this script never
    setup = os.path.join(os.path.dirname(sys.argv[1]), "setup_worker.py")
    command = [sys.executable, setup, *sys.argv[1:]]
    request = b"".join(os.fsencode(word) + b"\0" for word in (str(len(command)), os.environ["RAY_JOB_ID"], *command))
    has_environment = any(word.startswith("--serialized-runtime-env-context=") for word in command)
    if not has_environment and len(request) <= select.PIPE_BUF:
        try:
            requests = os.open(os.path.join(os.environ[FOLDER], os.environ["RAY_RAYLET_PID"]), os.O_WRONLY)
        except FileNotFoundError:
            pass  # nobody serves this node
        else:
            os.write(requests, request)
            return
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
