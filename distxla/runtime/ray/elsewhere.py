"""A Ray that another process has joined for this one.

Clusters use only actors of Ray. A fork of the zygote, which has imported Ray, is their driver. So the user's process
imports no Ray (0.35 s), which would change random numbers, hooks, warning filters, paths and the environment there, and
Ray does not end it when the raylet is killed.

The two processes exchange length-prefixed pickles over a socket in the embedded Ray's private directory. Only requests
in ASKED are answered, by (error, value); errors of other requests come with the next answer.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import select
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distxla.errors import ClusterError, DistxlaError
from distxla.machine.threads import started_thread
from distxla.runtime.ray import client
from distxla.runtime.ray.session import RayHere

LENGTH = struct.Struct("<Q")
ASKED = {"join", "nodes", "answers"}
LOOK_S = 0.05  # between checks that the servers live
CLOSE_S = 0.5  # for an answer that nobody waits for any more


@dataclass(frozen=True)
class Reference:
    """A value or a call's answer in the other process, which drops it some time after this object is gone."""

    number: int


@dataclass(frozen=True)
class _Method:
    session: RayElsewhere
    actor: int
    name: str

    def remote(self, *arguments: Any) -> Reference:
        reference = self.session.reference()
        self.session.tell("call", reference.number, self.actor, self.name, arguments)
        return reference


class _Actor:
    """An actor's handle. Its methods are those that the actor has."""

    def __init__(self, session: RayElsewhere, number: int) -> None:
        self._session, self.number = session, number

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self._session, self.number, name)


class RayElsewhere:
    """A session.Session by requests to the other process, which a thread of its own sends.

    So an exception of a signal handler, which comes in the main thread, leaves neither half a request nor an answer for
    the next question: the answer to a question that was given up goes to nobody.

    check: raises an error if it cannot answer any more.  explained: makes the error for a message, with the reason if
    one is known.
    """

    def __init__(
        self,
        connection: socket.socket,
        check: Callable[[], None],
        explained: Callable[[str], ClusterError] = ClusterError,
    ) -> None:
        self._connection, self._check, self._explained = connection, check, explained
        self._owner = os.getpid()
        self._numbers = itertools.count()  # of actors and references
        self._dropped: deque[int] = deque()  # references that are gone; sent with the next request
        self._requests: SimpleQueue[tuple[bytes, SimpleQueue[Any] | None] | None] = SimpleQueue()
        thread = threading.Thread(target=self._exchange, name="distxla-session", daemon=True)
        self._thread = started_thread(thread, "the embedded Ray cannot be joined")

    def reference(self) -> Reference:
        """A new reference."""
        made = Reference(next(self._numbers))
        weakref.finalize(made, self._dropped.append, made.number).atexit = False
        return made

    def join(self, address: str, node: str, local: str) -> None:
        """Let the other process join; see client.join. Blocks; ClusterError if it can't."""
        self._ask("join", address, node, local)

    def nodes(self) -> tuple[str, list[dict[str, Any]]]:
        found: tuple[str, list[dict[str, Any]]] = self._ask("nodes")
        return found

    def create(self, actor: type, node: str, arguments: Sequence[tuple[Any, ...]], gpus: float = 0.0) -> list[Any]:
        numbers = [next(self._numbers) for _ in arguments]
        self.tell("create", numbers, actor, node, list(arguments), gpus)
        return [_Actor(self, number) for number in numbers]

    def put(self, value: Any) -> Reference:
        reference = self.reference()
        self.tell("put", reference.number, value)
        return reference

    def answers(self, pending: Sequence[Any], names: Sequence[str]) -> tuple[int, list[Any] | None]:
        found: tuple[int, list[Any] | None] = self._ask("answers", [p.number for p in pending], list(names))
        return found

    def kill(self, actors: Sequence[Any]) -> None:
        with contextlib.suppress(ClusterError):
            self.tell("kill", [actor.number for actor in actors])

    def close(self) -> None:
        """Send what was asked for, and hang up."""
        self._requests.put(None)
        try:
            self._thread.join(CLOSE_S)
        finally:
            with contextlib.suppress(OSError):  # it is closed, or the other process has ended
                self._connection.shutdown(socket.SHUT_RDWR)  # a forked child may have a copy
            self._connection.close()

    def tell(self, *request: Any) -> None:
        """Send a request without an answer."""
        self._send(request, None)

    def _ask(self, *request: Any) -> Any:
        found: SimpleQueue[Any] = SimpleQueue()
        self._send(request, found)
        while True:
            try:
                answer = found.get(timeout=LOOK_S)
            except Empty:
                self._check()
                if self._thread.is_alive():
                    continue
                answer = None
            if answer is None:
                raise self._gone()
            error, value = answer
            if error is not None:
                raise error
            return value

    def _send(self, request: tuple[Any, ...], answer: SimpleQueue[Any] | None) -> None:
        if os.getpid() != self._owner or not self._thread.is_alive():
            raise self._gone()
        self._requests.put((_packed(request), answer))

    def _exchange(self) -> None:
        """In the thread: send requests and hand out answers, None where none can come any more."""
        answer: SimpleQueue[Any] | None = None
        with contextlib.suppress(EOFError, OSError):
            while (request := self._requests.get()) is not None:
                data, answer = request
                dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
                self._connection.sendall((_packed(("drop", dropped)) if dropped else b"") + data)
                if answer is not None:
                    answer.put(receive(self._connection))
            answer = None
        if answer is not None:
            answer.put(None)

    def _gone(self) -> ClusterError:
        with contextlib.suppress(OSError):
            self._check()
        return self._explained("the process that speaks with Ray has ended")


class _Served:
    """The other process's side: actors and references by number."""

    def __init__(self) -> None:
        self._ray = RayHere()
        self._found: dict[int, Any] = {}

    def handle(self, kind: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self, f"_{kind}")(*arguments)

    def _join(self, address: str, node: str, local: str) -> None:
        client.join(address, node, local=local)

    def _nodes(self) -> Any:
        return self._ray.nodes()

    def _create(self, numbers: list[int], actor: type, node: str, rows: list[tuple[Any, ...]], gpus: float) -> None:
        self._found.update(zip(numbers, self._ray.create(actor, node, rows, gpus)))

    def _put(self, number: int, value: Any) -> None:
        self._found[number] = self._ray.put(value)

    def _call(self, number: int, actor: int, method: str, arguments: tuple[Any, ...]) -> None:
        given = [self._found[a.number] if isinstance(a, Reference) else a for a in arguments]
        self._found[number] = getattr(self._found[actor], method).remote(*given)

    def _answers(self, numbers: list[int], names: list[str]) -> tuple[int, list[Any] | None]:
        return self._ray.answers([self._found[number] for number in numbers], names)

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            self._found.pop(number, None)

    def _kill(self, numbers: list[int]) -> None:
        self._ray.kill([self._found.pop(number) for number in numbers if number in self._found])


def serve(path: str) -> None:
    """Be the driver of the process that listens at `path`, until it ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    threading.Thread(target=_end_with, args=(connection,), name="distxla-end", daemon=True).start()
    served, failure = _Served(), None
    for kind, *arguments in _requests(connection):
        value = None
        try:
            value = served.handle(kind, tuple(arguments))
        except DistxlaError as error:
            failure = failure or error
        except Exception as error:
            failure = failure or ClusterError(f"{type(error).__name__}: {error}")
        if kind in ASKED:
            send(connection, (failure, value))
            failure = None


def _end_with(connection: socket.socket) -> None:
    """End this process when the other side has hung up: Ray may wait for its servers for minutes, or forever."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def _requests(connection: socket.socket) -> Iterator[tuple[Any, ...]]:
    while True:
        try:
            yield receive(connection)
        except EOFError:
            return


def send(connection: socket.socket, value: object) -> None:
    """Send one pickle."""
    connection.sendall(_packed(value))


def _packed(value: object) -> bytes:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def receive(connection: socket.socket) -> Any:
    """Receive one pickle; blocks. EOFError at the end."""
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    return pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
