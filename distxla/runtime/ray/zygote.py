"""The process whose forks become the workers of an embedded Ray: it imports their modules once.

    python -P zygote.py RAYLET REQUESTS FORKED PORT INTRODUCED DRIVER

RAYLET: a process id.  REQUESTS: a FIFO with requests for workers.  FORKED: a FIFO into which it writes a byte for
each worker.  PORT, INTRODUCED: see client.introduce.  DRIVER: see driver_process.serve.

The raylet starts a shell for each worker (worker.sh), which writes the worker's command into the FIFO and ends: the
raylet knows a worker by an id among the command's arguments, and its process by the worker's own report. A copy of this
process then does the command's work: it becomes Ray's own `default_worker.py`. A start takes 0.04 s of processor
time instead of 0.6 s, and workers share the pages of imported modules.

A fork has only the forking thread, and shares every connection: so this process must run no other thread and hold no
connection. This process ends with the supervisor, with the driver, which holds the FIFO open, and with the raylet.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # where the driver imports distxla from

from distxla.machine.library_threads import one_thread
from distxla.machine.processes import descriptor_of, let_be_killed_first, readable
from distxla.runtime.ray import client
from distxla.runtime.ray.deferred import deferred
from distxla.targets.registry import host, native_target

# modules that a worker and a replica import later, besides those that default_worker.py itself imports
MODULES = (
    "asyncio",
    "concurrent.futures.thread",
    "encodings.ascii",
    "numpy",
    "distxla.runtime.ray.driver_process",
    "distxla.runtime.replica.replica",
    "distxla.collectives.transports.abort",
)
RAYS_MODULES = (  # likewise; a version may lack some
    "ray._common.pydantic_compat",
    "ray._common.usage.usage_lib",
    "ray._private.arrow_serialization",
)
# modules that Ray imports for features that workers here don't use: clouds, and environments that are made for a worker
UNUSED = ("jsonschema", "requests", "yaml")
ANY_JOB = "ffffffff"  # of workers that the raylet starts ahead


class Requests:
    """Worker commands out of the bytes that shells write: per request the number of words, the job, and the words."""

    def __init__(self) -> None:
        self._pending: list[bytes] = [b""]

    def feed(self, data: bytes) -> list[tuple[str, list[str]]]:
        """(job id, command) of each request that `data` completes."""
        first, *rest = data.split(b"\0")
        self._pending[-1] += first
        self._pending += rest
        found = []
        while len(self._pending) > 1 and len(self._pending) > (end := 2 + int(self._pending[0])):
            job, *command = [os.fsdecode(word) for word in self._pending[1:end]]
            found.append((job, command))
            del self._pending[:end]
        return found


def main() -> None:
    """See the command above."""
    parent, path, forked, port, introduced, driver = sys.argv[1:]

    def introduce() -> None:
        _fork(client.introduce, port, introduced, str(os.getpid()))

    def drive() -> None:
        from distxla.runtime.ray import driver_process

        _fork(driver_process.serve, driver)

    serve(int(parent), path, forked, introduce, drive)


def serve(
    parent: int,
    path: str,
    forked: str,
    with_ray: Callable[[], None] = lambda: None,
    with_all: Callable[[], None] = lambda: None,
) -> None:
    """Fork a worker for each request, until there can be no more. Ray must not be imported yet.

    parent, path, forked: see RAYLET, REQUESTS and FORKED above.  with_ray, with_all: called when Ray is imported, and
    when all modules are.
    """
    fifo = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    raylet = descriptor_of(parent)
    signal.signal(signal.SIGCHLD, _reap)
    # Ray reads these when it is imported, and never again
    os.environ |= {"RAY_RAYLET_PID": str(parent), "RAY_JOB_ID": ANY_JOB, "SPT_NOENV": "1"}
    code = _imported(with_ray)
    with_all()
    requests = Requests()
    while raylet not in readable(fifo, raylet):
        try:
            data = os.read(fifo, 1 << 16)
        except BlockingIOError:
            continue
        if not data:
            return  # the driver, which had it open for writing, has ended
        for job, command in requests.feed(data):
            if os.fork() == 0:
                os.close(fifo)
                os.close(raylet)
                _become(code, job, command)
                return
            _count(forked)


def _reap(*_: object) -> None:
    """Reap forks that have ended. With SIGCHLD ignored, the kernel would drop their processor time."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _count(forked: str) -> None:
    with suppress(OSError), open(os.open(forked, os.O_WRONLY | os.O_NONBLOCK), "wb", 0) as fifo:
        fifo.write(b"+")


def _fork(work: Callable[..., None], *arguments: str) -> None:
    """Fork; the child calls `work` and exits."""
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)


def _imported(then: Callable[[], None]) -> types.CodeType:
    """Import the workers' modules, and return the code of Ray's default_worker.py, which runs in each of them.

    then: to be called when Ray is imported.
    """
    gc.disable()  # what is imported stays: collections while it is took a tenth of the time, and found next to nothing
    with deferred(*UNUSED), one_thread(host().thread_variables):
        from ray._private.workers import default_worker

        path = default_worker.__file__
        code = compile(Path(path).read_bytes(), path, "exec")
        then()
        for name in RAYS_MODULES:
            with suppress(ModuleNotFoundError):
                importlib.import_module(name)
        for name in MODULES:
            importlib.import_module(name)
        _ = native_target().loader  # its module, and that of `atomics`, are imported at their first use
        host().atomics()
    gc.freeze()  # a collection in a fork would write to every page
    gc.enable()
    return code


def _become(code: types.CodeType, job: str, command: list[str]) -> None:
    """In a fork: become the worker that `command` would have started. command: an interpreter, setup_worker.py,
    default_worker.py and arguments, of which the language is setup_worker.py's."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ["RAY_JOB_ID"] = job
    os.setpgid(0, 0)  # as in a worker that the raylet starts: it ends a worker's whole group
    let_be_killed_first()  # as the raylet lets workers that it starts itself
    arguments = [word for word in command[2:] if not word.startswith("--language=")]
    _restore_threads()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    script = arguments[0]
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    sys.argv = arguments
    sys.path.insert(0, os.path.dirname(script))
    exec(code, module.__dict__)


def _restore_threads() -> None:
    """Set the threads of NumPy's library to the number in the user's environment; Ray's default is one."""
    values = (os.environ.get(name, "") for name in host().thread_variables)
    count = next((value for value in values if value.isdigit()), "1")
    if int(count) > 1:
        host().set_library_threads(int(count))


if __name__ == "__main__":
    main()
