"""A Ray of our own for one driver process: two servers on the loopback interface, taken down with the cluster.

Ray's `ray.init()` starts a dashboard, agents, a log monitor and an autoscaler as well, and picks the host's outward
address; here the two servers that actors need (gcs_server, raylet) are started directly, with the address 127.0.0.1
(both then listen there only, and so do workers), with token authentication and a private directory. Workers are copies
of a third process (zygote.py), as is the one that joins the servers by `ray.init(address)` (driver_process.py): in the
user's own process that would change random numbers, hooks, warning filters, paths and the environment. A supervisor
process (supervisor.py) is the parent of all, and takes everything down when the user's process ends, however it ends.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from distxla import clock
from distxla.errors import ClusterError
from distxla.machine.extras import unmet
from distxla.machine.memory_limits import ARENAS, address_space
from distxla.machine.processes import is_readable
from distxla.machine.shortages import FILE_SIZE, FILES, MEMORY, PROCESSES, ROOM, load
from distxla.runtime.ray import commands
from distxla.runtime.ray.commands import RayFiles
from distxla.runtime.ray.driver_process import RayDriverProcess
from distxla.runtime.ray.session import Session
from distxla.runtime.ray.supervised import Supervised
from distxla.runtime.ray.token import Token

START_LIMIT_S = 60.0
STALL_LIMIT_S = 30.0  # for a step of the start that is quick, such as a shell
_BY_MESSAGE: Final = (
    (r"what\(\): +(?:thread: )?Resource temporarily unavailable", PROCESSES),
    (r"pthread_create failed|Cannot fork|can't start new thread|fork\w*: .*Resource temporarily", PROCESSES),
    (r"std::bad_alloc|Cannot allocate memory|\bMemoryError\b", MEMORY),
    (r"Too many open files", FILES),
    (r"No space left on device", ROOM),
    (r"File too large|File size limit exceeded", FILE_SIZE),
)
_STACK = re.compile(r"\(\+0x|    @ |[Ss]tack ?[Tt]race|\*\*\*|\[0x[0-9a-f]+\]|PC: @")  # lines that do not help a user
_MOST = 8  # lines of a server


class EmbeddedRay:
    """gcs_server and raylet of this process, under a supervisor. Blocking: `start` takes about 0.6 s, `close` 0.1 s."""

    def __init__(self, *, supervisor: subprocess.Popen[bytes] | None = None) -> None:
        """supervisor: of `spawn_supervisor`, to be used."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._session: RayDriverProcess | None = None
        self._requests = self._forked = -1  # descriptors of the FIFOs
        self._there: list[str] = []  # names of processes that must live
        self._progress = (0, 0), 0.0  # workers that were forked and actors that answer, and since when
        self._environment = Token().environment()
        self._closing = threading.Event()
        package = _package()
        self.supervisor = Supervised(supervisor)
        self.place = RayFiles(package, self.supervisor.directory, secrets.token_hex(28))
        try:
            for path in self.place.folders:
                os.mkdir(path, 0o700)
            # open for reading and writing, so that opening never blocks and no byte is lost
            self._requests, self._forked = _open_fifo(self.place.fifo), _open_fifo(self.place.forked)
            self._listener.bind(self.place.driver)
            self._listener.listen(1)
        except OSError as error:
            self.close()
            raise ClusterError(f"the embedded Ray cannot be started: {error.strerror}") from error

    def start(self, workers: int, closing: threading.Event) -> None:
        """Start the servers and join them. workers: how many may be starting at the same time.  closing: to be set to
        make it give up.

        Raises ClusterError with what they lack, or else with their messages, if they do not come up.
        """
        self._closing = closing
        self._there.append("supervisor")
        raylet = self._hold("raylet")
        errors = f"{self.place.logs}/zygote.err"
        zygote = commands.zygote_command(self.place, raylet)
        self._run(self._hold("zygote"), zygote, mark=self.place.fifo, errors=errors)
        self._run(self._hold("gcs_server"), commands.gcs_command(self.place))
        address, cluster = self._introduced()
        self._run(raylet, commands.raylet_command(self.place, address, cluster, workers))
        self._raylet_socket()
        self._join(address)
        self._require(True, "")
        self._closing = threading.Event()  # other clusters of this process may outlive the one that started it

    def _join(self, address: str) -> None:
        end = clock.now() + START_LIMIT_S
        while not is_readable(self._listener.fileno(), 0.05):
            self._require(clock.now() < end, f"no driver within {START_LIMIT_S:g} s")
        connection, _ = self._listener.accept()
        self._session = RayDriverProcess(connection, lambda: self._require(True, ""), self._explained)
        self._session.join(address, self.place.node, self.place.private)

    @property
    def session(self) -> Session:
        """Of a Ray that has started."""
        assert self._session is not None
        return self._session

    @property
    def is_alive(self) -> bool:
        """Whether its servers, and the process that has joined them, live; does not wait."""
        names = [name for name in self.supervisor.names if name != "zygote"]
        ended = any(self.supervisor.has_ended(name) for name in names)
        return self._session is not None and self._session.is_alive and not ended

    def abandon(self) -> None:
        """Let the supervisor end everything; does not wait."""
        self.supervisor.release()

    def close(self) -> None:
        """End the driver and the servers, remove the directory. Never raises."""
        self._listener.close()
        if self._session is not None:
            self._session.close()
        self.supervisor.close()
        for descriptor in (self._requests, self._forked):
            if descriptor >= 0:
                os.close(descriptor)

    def _hold(self, name: str) -> int:
        """The id of a new process, which waits for its command."""
        process = self.supervisor.hold(name)
        self._there.append(name)
        return process

    def _run(self, process: int, command: list[str], **more: str) -> None:
        """Give a process its command. more: see supervisor.py."""
        environment = dict(self._environment)
        environment["RAY_enable_pipe_based_agent_to_parent_health_check"] = "1"  # agent.sh waits for the pipe's end
        if address_space() is not None:
            environment.setdefault("MALLOC_ARENA_MAX", str(ARENAS))
        self.supervisor.run(process, command, environment, **more)

    def _introduced(self) -> tuple[str, str]:
        """The gcs_server's address, and the cluster's id."""
        self._wait_for(Path(self.place.introduced))
        address, cluster = Path(self.place.introduced).read_text().split()
        return address, cluster

    def _raylet_socket(self) -> None:
        self._wait_for(Path(self.place.sockets, "raylet"))

    def _wait_for(self, path: Path) -> None:
        end = clock.now() + START_LIMIT_S
        while not path.exists():
            self._require(clock.now() < end, f"no {path.name} within {START_LIMIT_S:g} s")
            clock.sleep(0.002)

    def begin(self) -> None:
        """A cluster starts: the processes must live until it has. Without a zygote workers start the long way."""
        ended = self.supervisor.has_ended
        self._there = [name for name in self.supervisor.names if name != "zygote" or not ended(name)]
        self._progress = (0, 0), clock.now()

    def started(self) -> None:
        """No more workers are needed for now."""
        self._there = [name for name in self._there if name != "zygote"]

    def require_progress(self, answers: int) -> None:
        """ClusterError if one of those processes has ended, or if for STALL_LIMIT_S neither more workers were forked
        nor more actors have answered. answers: number of actors that answer."""
        self._require(True, "")
        progress, since = self._progress
        forked = progress[0]
        with suppress(BlockingIOError):
            forked += len(os.read(self._forked, 1 << 16))
        if (forked, answers) != progress:
            self._progress = (forked, answers), clock.now()
        elif "zygote" in self._there:
            what = f"for {STALL_LIMIT_S:g} s Ray has asked for no more workers than {forked}"
            self._require(clock.now() < since + STALL_LIMIT_S, what)

    def _require(self, fine: bool, what: str) -> None:
        """ClusterError if a process has ended, if the cluster is closed, or if not `fine`: `what` took too long."""
        if self._closing.is_set():
            raise ClusterError("the cluster is closed")
        ended = [name for name in self._there if self.supervisor.has_ended(name)]
        if ended:
            raise self._explained(f"the {ended[0]} of the embedded Ray has ended")
        if not fine:
            raise self._explained(f"the embedded Ray did not start: {what}; {load()}")

    def _explained(self, what: str) -> ClusterError:
        return ClusterError(explained(what, self.place.logs))


def _package() -> Path:
    """The folder of the package ray, found without importing it."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        raise ClusterError(unmet("running on a cluster", ["ray"]) or "the package ray has no folder")
    return Path(found.origin).parent


def _open_fifo(path: str) -> int:
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)


def explained(what: str, logs: str) -> str:
    """`what`, and what the messages in a folder say that is missing, in one line; else their first lines."""
    texts = [path.read_text(errors="replace") for path in sorted(Path(logs).glob("*.err"))]
    for pattern, missing in _BY_MESSAGE:
        if any(re.search(pattern, text) for text in texts):
            return f"{what}: {missing}"
    lines = [line for text in texts for line in [x for x in text.splitlines() if not _STACK.search(x)][:_MOST]]
    return "\n".join([what, *("".join(c for c in line[:300] if c.isprintable()) for line in lines)]).strip()
