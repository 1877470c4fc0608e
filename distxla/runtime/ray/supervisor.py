"""The ancestor of all processes of an embedded Ray: ends them when the driver has ended, however it ended.

Run as `python -I -S supervisor.py`, with nothing but the standard library, and little of that: everything waits for it.
Requests on standard input, each a dictionary in the format of the module `marshal` behind its size in 4 bytes:

    {"directory": PATH}                         remove this directory at the end
    {"hold": True}                              make a process that waits for its command; answered by one line: its
                                                pid, or where there can be none a negative errno, and then it ends
    {"pid": PID, "command": [...], "environment": {...}}    give it its command
    {..., "errors": PATH}                       append its standard error to this file
    {..., "mark": PATH}                         remove this file as soon as that process has ended

At the end of standard input, or when its parent ends, it kills every descendant, removes the directory and exits. It is
the subreaper of its descendants, so none of them can leave it by outliving its own parent.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import time
from contextlib import suppress

TYPE_CHECKING = False  # typing's own takes 3 ms
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

SIZE_BYTES = 4
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
    """SIGKILL descendants until none is left; one that does not die within `seconds` hangs in the kernel."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        again = min(end, time.monotonic() + 0.05)  # one that has just been forked wasn't seen
        while time.monotonic() < again:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.001)
            except ChildProcessError:
                return


class WaitingProcess:
    """A process that has a number and no command yet. It dies with this one, and without a command when that is due."""

    def __init__(self) -> None:
        command, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _await_command(command)
        os.close(command)

    def become(self, request: dict[str, Any]) -> None:
        """Run the command, silent but for errors."""
        with open(self._pipe, "wb") as pipe:
            pipe.write(marshal.dumps(request))


def _await_command(pipe: int) -> NoReturn:
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):  # whose actions Python changes
            signal.signal(number, signal.SIG_DFL)
        with open(pipe, "rb") as whole:
            data = whole.read()
        if data:
            request = marshal.loads(data)
            silence, errors = os.open(os.devnull, os.O_RDWR), request.get("errors") or os.devnull
            for descriptor, target in (
                (silence, 0),
                (silence, 1),
                (os.open(errors, os.O_WRONLY | os.O_CREAT, 0o600), 2),
            ):
                os.dup2(descriptor, target)
            os.execve(request["command"][0], request["command"], request["environment"])
    finally:
        os._exit(127)


def reap(marks: dict[int, str]) -> None:
    """Reap all children that have ended, and remove their mark files."""
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            if mark := marks.pop(pid, ""):
                with suppress(OSError):
                    os.unlink(mark)


class Requests:
    """Requests out of the bytes of standard input."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The requests that `data` completes."""
        self._pending += data
        while len(self._pending) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._pending[:SIZE_BYTES], "little")
            if len(self._pending) < end:
                return
            request, self._pending = self._pending[SIZE_BYTES:end], self._pending[end:]
            yield marshal.loads(request)


def _end_input(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would close another file, opened at the end as 0
    with suppress(OSError):
        os.close(0)


def main() -> None:
    directory: str | None = None
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_input)
    ended, wake = os.pipe()
    for end in (ended, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    driver = os.pidfd_open(os.getppid())
    poll = select.poll()
    for descriptor in (0, driver, ended):
        poll.register(descriptor, select.POLLIN)
    marks: dict[int, str] = {}
    waiting: dict[int, WaitingProcess] = {}
    requests = Requests()
    try:
        while True:
            ready = dict(poll.poll())
            if driver in ready:
                return
            if ended in ready:
                os.read(ended, 1 << 10)
                reap(marks)
            if 0 not in ready:
                continue
            received = os.read(0, 1 << 16)
            if not received:
                return
            for request in requests.feed(received):
                directory = request.get("directory", directory)
                if "hold" in request:
                    try:
                        process = WaitingProcess()
                    except OSError as error:
                        print(-(error.errno or 1), flush=True)
                        return
                    waiting[process.pid] = process
                    print(process.pid, flush=True)
                if "command" in request:
                    marks[request["pid"]] = request.get("mark", "")
                    waiting.pop(request["pid"]).become(request)
    except OSError:
        return
    finally:
        kill_descendants()
        if directory is not None:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # without taking the interpreter apart: the driver waits
