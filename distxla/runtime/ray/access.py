"""The Ray of this process, joined or embedded: a process has one.

Several clusters of one driver share it, and the last one takes it down or leaves it. A Ray that the user's own process
has already joined is used as it is and left alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from distxla.errors import ClusterError
from distxla.lazy_dataclass import dataclass
from distxla.machine.shortages import started_thread
from distxla.runtime.ray import client, machine, versions
from distxla.runtime.ray.embedded import EmbeddedRay
from distxla.runtime.ray.plain import PlainRay
from distxla.runtime.ray.session import RayHere, Session

WORKERS_AHEAD = 64  # may start at the same time, while the number of devices is not known
DEVICES_AHEAD = 128  # for which the servers then have enough open files
LOOK_S = 0.05  # between checks whether a cluster that waits is being closed


@dataclass
class _Shared:
    """An embedded Ray, and how many clusters use it."""

    ray: EmbeddedRay | PlainRay
    users: int = 0


_lock = threading.Lock()
_users = 0  # of the Ray that this module has joined
running: _Shared | None = None  # the one that new clusters use
dead: list[_Shared] = []  # others, whose processes have ended, until the last of their clusters is closed
_ahead: Ahead | None = None
_joined: str | None = None  # the address of a running Ray that this module has joined

_parents: object = None  # of a forked child: what it has a copy of, which must not end here

ANSWER_S = 5.0  # for a Ray that is to be joined
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame: length, type, flags, stream
SETTINGS_AT = 3  # where a frame has its type


class Ahead:
    """An embedded Ray that a thread starts before a cluster needs it."""

    def __init__(self, supervisor: subprocess.Popen[bytes]) -> None:
        machine.require_startable(DEVICES_AHEAD)
        self.ray = EmbeddedRay(supervisor=supervisor)
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        thread = threading.Thread(target=self._start, name="distxla-ray", daemon=True)
        try:
            self._thread = started_thread(thread, "the embedded Ray cannot be started")
        except ClusterError:
            self.ray.close()
            raise

    def _start(self) -> None:
        try:
            self.ray.start(WORKERS_AHEAD, self._closing)
        except BaseException as error:  # raised by `get`
            self._failure = error

    def get(self, closing: threading.Event) -> EmbeddedRay:
        """Block until it has started; raises the error of the start. closing: to be set to make it give up."""
        while self._thread.is_alive():
            self._thread.join(LOOK_S)
            if closing.is_set():
                self._closing.set()
        if self._failure is not None:
            self.ray.close()
            raise self._failure
        return self.ray

    def abandon(self) -> None:
        """Let it end, without waiting."""
        self.ray.abandon()


@cache
def _watch_forks() -> None:
    """From now on forked children leave what is running to their parents."""
    watch_forks()
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _lock, _users, running, dead, _ahead, _joined, _parents
    _parents = running, dead, _ahead, _parents
    _lock, _users, running, dead, _ahead, _joined = threading.Lock(), 0, None, [], None, None


def begin(supervisor: subprocess.Popen[bytes]) -> None:
    """Start an embedded Ray for the first cluster of this process, in the background; that takes about as long as
    importing NumPy and reading a module. It ends with the process, or by `abandon`."""
    global _ahead
    with suppress(ClusterError):  # `acquire` tries again, and raises
        if _has_servers():
            _watch_forks()
            _ahead = Ahead(supervisor)
            atexit.register(abandon)
            return
    with supervisor:  # ends when its stdin is closed
        pass


def abandon() -> None:
    """End the Ray that `begin` has started, since no cluster needs it; does not wait."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is not None:
        ahead.abandon()


def acquire(workers: int, address: str | None, closing: threading.Event) -> tuple[Session, bool]:
    """The Ray to use, and whether `release` must be called for it. An embedded one whose processes have ended is used
    no more: another one is started.

    address: a Ray cluster to join; None for the embedded one.  closing: to be set, in another thread, to make it give
    up. Blocks until joined. Raises ClusterError.
    """
    global _users, running, _joined, _ahead
    with _locked(closing):
        if _joined is not None:
            if address not in (None, "auto", _joined, _head()):
                raise ClusterError(f"this process has joined the Ray at {_joined} and can join no other")
            _users += 1
            return RayHere(), True
        if running is not None and not running.ray.is_alive:
            dead.append(running)
            running = None
        if running is None and _ahead is None:
            ray: Any = sys.modules.get("ray")
            if ray is not None and ray.is_initialized():
                return RayHere(), False
        _watch_forks()
        if address is not None:
            if running is not None or _ahead is not None:
                raise ClusterError("this process already runs an embedded Ray and can join no other")
            join(address)
            _joined, _users = address, 1
            return RayHere(), True
        if running is None and _ahead is not None:
            ahead, _ahead = _ahead, None
            if workers <= DEVICES_AHEAD:
                running = _Shared(ahead.get(closing))
            else:
                ahead.abandon()
        if running is None:
            machine.require_startable(workers)
            started = new_ray()
            try:
                started.start(workers, closing)
            except BaseException:
                started.close()
                raise
            running = _Shared(started)
        running.ray.begin()
        running.users += 1
        return running.ray.session, True


@contextmanager
def _locked(closing: threading.Event) -> Iterator[None]:
    """Hold the lock, which another cluster may hold while it starts a Ray; ClusterError once `closing` is set."""
    while not _lock.acquire(timeout=LOOK_S):
        if closing.is_set():
            raise ClusterError("the cluster is closed")
    try:
        yield
    finally:
        _lock.release()


def new_ray() -> EmbeddedRay | PlainRay:
    """An embedded Ray, not started yet, for the installed version."""
    return EmbeddedRay() if _has_servers() else PlainRay()


def _has_servers() -> bool:
    return versions.start_of(versions.installed()) is versions.Start.SERVERS


def started() -> None:
    """Note that the cluster of the last `acquire` has started and needs no more workers."""
    if running is not None:
        running.ray.started()


def require_progress(answers: int) -> None:
    """ClusterError if the embedded Ray, if any, can't start a cluster any more. answers: actors that answer."""
    if running is not None:
        running.ray.require_progress(answers)


def is_embedded(address: str | None) -> bool:
    """Whether `acquire` gives the embedded Ray, which has this host only. Does not wait for one that is starting."""
    if running is not None:
        return True
    ray: Any = sys.modules.get("ray")
    return address is None and _joined is None and not (ray is not None and ray.is_initialized())


def release(session: Session) -> None:
    """The counterpart of an `acquire` that gave this and True; the last one leaves Ray, and takes an embedded one
    down."""
    with _lock:  # no loop here: an interrupt in it could leave the lock taken
        shared = next((one for one in (*dead, running) if one is not None and one.ray.session is session), None)
        if shared is None:
            _leave()
        else:
            _give_up(shared)


def _leave() -> None:
    """With the lock: one cluster less uses the Ray that was joined."""
    global _users, _joined
    _users -= 1
    if _users == 0:
        _joined = None
        ray: Any = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            ray.shutdown()


def _give_up(shared: _Shared) -> None:
    """With the lock: one cluster less uses an embedded Ray."""
    global running
    shared.users -= 1
    if shared.users == 0:
        dead[:] = [other for other in dead if other is not shared]
        running = None if running is shared else running
        shared.ray.close()


def _head() -> str:
    """The address of the Ray that this process has joined, as Ray spells it."""
    import ray

    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else ""


def _require_token(address: str) -> None:
    """ClusterError if the Ray at `address` requires a token that this process does not have.

    `ray.init` would retry for half a minute and then not mention tokens. A client with a made-up cluster id is
    answered at once: with the right token, the answer is that the id is wrong.
    """
    loader = client.reread_environment()
    if loader is None:
        return
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    wants = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    if wants and not loader.has_token(ignore_auth_mode=True):
        raise ClusterError(
            "RAY_AUTH_MODE=token, but there is no token: put it into RAY_AUTH_TOKEN, or its file into "
            "RAY_AUTH_TOKEN_PATH"
        )
    try:
        GcsClient(address=address, cluster_id=secrets.token_hex(28)).internal_kv_get(b"", b"", timeout=2)
    except AuthenticationError as error:
        if "InvalidAuthToken" not in str(error):
            return
        if wants:
            raise ClusterError(
                f"the Ray at {address} wants another token than RAY_AUTH_TOKEN or its file gives"
            ) from error
        raise ClusterError(
            f"the Ray at {address} admits only clients with its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or "
            "RAY_AUTH_TOKEN_PATH, a file; ~/.ray/auth_token by default)"
        ) from error
    except Exception:  # ray.init reports anything else
        return


def _speaks_grpc(connection: socket.socket) -> bool:
    """Whether a server of Ray's kind is at the other end: each side of HTTP/2 begins with a frame of settings. True of
    encrypted connections, about which this says nothing. OSError where no answer comes."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True
    connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS)
    head = b""
    while len(head) < len(EMPTY_SETTINGS) and (more := connection.recv(len(EMPTY_SETTINGS) - len(head))):
        head += more
    return len(head) == len(EMPTY_SETTINGS) and head[SETTINGS_AT] == EMPTY_SETTINGS[SETTINGS_AT]


def join(address: str) -> None:
    if "://" in address:
        raise ClusterError(f"address {address!r}: a driver joins by host:port, not through a Ray client")
    host, _, port = address.rpartition(":")
    if port.isdigit():  # Ray itself tries for minutes, and may end the process
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as connection:
                is_ray = _speaks_grpc(connection)
        except OSError as error:
            raise ClusterError(f"nothing answers at {address}: {error}") from error
        if not is_ray:
            raise ClusterError(f"no Ray is at {address}: what listens there does not speak gRPC")
        machine.require_raylet(address)
        _require_token(address)
    import ray

    try:
        with client.quiet(), client.same_end():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"could not join the Ray cluster at {address}: {error}") from error


@cache
def watch_forks() -> None:
    """From now on forked children leave Ray to this process, which has joined it.

    Ray's objects have threads that a child lacks. Its exit handler would wait for them for ever, as would the
    destructors of its library's static objects; others use what is not there.
    """
    os.register_at_fork(after_in_child=_leave_to_parent)


def _leave_to_parent() -> None:
    """Take Ray's exit handler away, and keep its objects until the process ends, which it does without destructors of
    static objects once Python has ended."""
    worker: Any = sys.modules.get("ray._private.worker")
    state: Any = sys.modules.get("ray._private.state")
    if worker is None:
        return
    atexit.unregister(worker.shutdown)
    for kept in (worker.global_worker, getattr(state, "state", None)):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    libc = ctypes.CDLL(None)
    # They run in reverse order, before all that were registered before the fork, with the exit status as the argument.
    for last in (libc._exit, libc.fcloseall):
        libc.on_exit(last, None)
