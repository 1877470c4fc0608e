"""A Ray that another process has joined for this one.

Clusters use only actors of Ray. A fork of the zygote, which has imported Ray, is their driver. So the user's process
imports no Ray (0.35 s), which would change random numbers, hooks, warning filters, paths and the environment there, and
Ray does not end it when the raylet is killed.

The two processes exchange length-prefixed pickles over a socket in the embedded Ray's private directory. A request is
(number, kind, arguments...). One with a number is answered by (number, error, value), in any order: a wait for the
actors of one cluster keeps no other waiting. One without is not answered: where it fails, so do those that ask for what
it should have made.
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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from distxla.errors import ClusterError, DistxlaError
from distxla.lazy_dataclass import dataclass
from distxla.machine.shortages import started_thread
from distxla.runtime.ray import client
from distxla.runtime.ray.session import RayHere

LENGTH = struct.Struct("<Q")
WAITS = {"answers"}  # requests that wait for actors
MOST_WAITS = 32  # of clusters and threads, at the same time; others wait for one of these
LOOK_S = 0.05  # between checks that the servers live
CLOSE_S = 0.5  # for requests that are still to be sent

Answer = tuple[BaseException | None, Any]


@dataclass(frozen=True)
class Reference:
    """A value or a call's answer in the other process, which drops it some time after this object is gone."""

    number: int


@dataclass(frozen=True)
class _Method:
    session: RayDriverProcess
    actor: int
    name: str

    def remote(self, *arguments: Any) -> Reference:
        reference = self.session.reference()
        self.session.tell("call", reference.number, self.actor, self.name, arguments)
        return reference


class _Actor:
    """An actor's handle. Its methods are those that the actor has."""

    def __init__(self, session: RayDriverProcess, number: int) -> None:
        self._session, self.number = session, number

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self._session, self.number, name)


class RayDriverProcess:
    """A session.Session by requests to the other process; one thread sends them, another one takes the answers.

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
        self.connection, self._check, self._explained = connection, check, explained
        self._owner = os.getpid()
        self._numbers = itertools.count()  # of actors and references
        self._questions = itertools.count()
        self._dropped: deque[int] = deque()  # references that are gone; sent with the next request
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._asked: dict[int, SimpleQueue[Answer]] = {}  # by number, until they are answered or given up
        self._has_ended = threading.Event()  # nothing is sent any more, or nothing can be answered
        what = "the embedded Ray cannot be joined"
        self._sender = threading.Thread(target=self._send_all, name="distxla-session", daemon=True)
        started_thread(self._sender, what)
        started_thread(threading.Thread(target=self._receive_all, name="distxla-answers", daemon=True), what)

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

    @property
    def is_alive(self) -> bool:
        """Whether the other process can still be asked; does not wait."""
        return not self._has_ended.is_set()

    def close(self) -> None:
        """Send what was asked for, and hang up."""
        self._requests.put(None)
        try:
            self._sender.join(CLOSE_S)
        finally:
            self._has_ended.set()
            with contextlib.suppress(OSError):  # it is closed, or the other process has ended
                self.connection.shutdown(socket.SHUT_RDWR)  # a forked child may have a copy
            self.connection.close()

    def tell(self, *request: Any) -> None:
        """Send a request without an answer."""
        self._send(None, request)

    def _ask(self, *request: Any) -> Any:
        number, found = next(self._questions), SimpleQueue[Answer]()
        self._asked[number] = found
        try:
            self._send(number, request)
            error, value = self._answer(found)
        finally:
            self._asked.pop(number, None)
        if error is not None:
            raise error
        return value

    def _answer(self, found: SimpleQueue[Answer]) -> Answer:
        while True:
            has_ended = self._has_ended.is_set()
            try:
                return found.get(timeout=0 if has_ended else LOOK_S)
            except Empty:
                self._check()
                if has_ended:
                    raise self._gone() from None

    def _send(self, number: int | None, request: tuple[Any, ...]) -> None:
        if os.getpid() != self._owner or self._has_ended.is_set():
            raise self._gone()
        self._requests.put(_packed((number, *request)))

    def _send_all(self) -> None:
        """In a thread: send requests."""
        with contextlib.suppress(OSError):
            while (data := self._requests.get()) is not None:
                dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
                self.connection.sendall((_packed((None, "drop", dropped)) if dropped else b"") + data)
            return
        self._has_ended.set()

    def _receive_all(self) -> None:
        """In a thread: hand out answers, until the other side hangs up."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, error, value = receive(self.connection)
                if (found := self._asked.get(number)) is not None:
                    found.put((error, value))
        self._has_ended.set()

    def _gone(self) -> ClusterError:
        with contextlib.suppress(OSError):
            self._check()
        return self._explained("the process that speaks with Ray has ended")


@dataclass(frozen=True)
class _Failed:
    """Takes the place of an actor or a value that a request could not make."""

    error: DistxlaError


class Served:
    """The other process's side: actors and references by number. `handle` is called for one request after another."""

    def __init__(self) -> None:
        self._ray = RayHere()
        self.found: dict[int, Any] = {}

    def handle(self, kind: str, arguments: tuple[Any, ...]) -> Any:
        """Do what a request asks for; of one that is answered returns a function that gives the answer, for those of
        WAITS after a while. Raises only for these, where what they ask for could not be made."""
        return getattr(self, f"_{kind}")(*arguments)

    def _join(self, address: str, node: str, local: str) -> Callable[[], Any]:
        def join() -> None:
            client.join(address, node, local=local)

        return join

    def _nodes(self) -> Callable[[], Any]:
        return self._ray.nodes

    def _create(self, numbers: list[int], actor: type, node: str, rows: list[tuple[Any, ...]], gpus: float) -> None:
        self._make(numbers, lambda: self._ray.create(actor, node, rows, gpus))

    def _put(self, number: int, value: Any) -> None:
        self._make([number], lambda: [self._ray.put(value)])

    def _call(self, number: int, actor: int, method: str, arguments: tuple[Any, ...]) -> None:
        def call() -> list[Any]:
            given = [self._of(a.number) if isinstance(a, Reference) else a for a in arguments]
            return [getattr(self._of(actor), method).remote(*given)]

        self._make([number], call)

    def _answers(self, numbers: list[int], names: list[str]) -> Callable[[], Any]:
        pending = [self._of(number) for number in numbers]
        return lambda: self._ray.answers(pending, names)

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            self.found.pop(number, None)

    def _kill(self, numbers: list[int]) -> None:
        actors = [self.found.pop(number) for number in numbers if number in self.found]
        with contextlib.suppress(Exception):  # Ray was shut down, and they ended with it
            self._ray.kill([actor for actor in actors if not isinstance(actor, _Failed)])

    def _make(self, numbers: list[int], make: Callable[[], list[Any]]) -> None:
        try:
            self.found.update(zip(numbers, make(), strict=True))
        except Exception as error:  # told to those who ask for what was to be made
            self.found.update(dict.fromkeys(numbers, _Failed(_as_ours(error))))

    def _of(self, number: int) -> Any:
        found = self.found[number]
        if isinstance(found, _Failed):
            raise found.error
        return found


def _as_ours(error: Exception) -> DistxlaError:
    return error if isinstance(error, DistxlaError) else ClusterError(f"{type(error).__name__}: {error}")


def serve(path: str) -> None:
    """Be the driver of the process that listens at `path`, until it ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    threading.Thread(target=_end_with, args=(connection,), name="distxla-end", daemon=True).start()
    serve_requests(connection)


def serve_requests(connection: socket.socket) -> None:
    """Do what the other side asks for, until it hangs up."""
    served, lock = Served(), threading.Lock()

    def answer(number: int, give: Callable[[], Any]) -> None:
        error, value = None, None
        try:
            value = give()
        except Exception as failure:
            error = _as_ours(failure)
        data = _packed((number, error, value))
        with lock, contextlib.suppress(OSError):  # the other side has ended
            connection.sendall(data)

    with ThreadPoolExecutor(MOST_WAITS, "distxla-waits") as threads:
        for number, kind, *arguments in _requests(connection):
            if number is None:
                served.handle(kind, tuple(arguments))
                continue
            try:
                give = served.handle(kind, tuple(arguments))
            except Exception as error:
                give = partial(_raise, error)
            if kind in WAITS:
                threads.submit(answer, number, give)
            else:
                answer(number, give)


def _raise(error: Exception) -> NoReturn:
    raise error


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
