"""The cluster of another process, the owner, as a JAX process sees it."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from distxla.errors import ClusterError, DistxlaError, InternalError
from distxla.jax.processes.attached_executable import OwnersCompiler
from distxla.jax.processes.attached_memory import AttachedMemories
from distxla.jax.processes.attached_streams import AttachedStreams
from distxla.jax.processes.board_calls import BoardCalls, SliceFacts
from distxla.jax.processes.connection_to_owner import SLICE_S, OwnersConnection
from distxla.jax.processes.endings import own_ending
from distxla.jax.processes.facts import AttachedMemory
from distxla.jax.processes.frame_launches import FrameLaunch, FrameLaunches
from distxla.jax.processes.introduced import introduction
from distxla.jax.processes.messages import (
    LARGEST,
    LATE,
    PROCESS_FRAMES,
    Ask,
    Attached,
    Bye,
    Failed,
    Hello,
    News,
    Told,
    pack_json,
    unpack_json,
)
from distxla.jax.processes.owner_file import OWNER, pack_paths, read_owner, unpack_path
from distxla.jax.processes.places import where_main_is
from distxla.jax.processes.spawn import OwnerProcess, OwnerSettings, spawn_owner
from distxla.jax.processes.told_errors import pack_error, unpack_error
from distxla.jax.processes.world import KeyValueStore, World
from distxla.machine.heap import Heap
from distxla.machine.segments import Segment
from distxla.machine.shortages import started_thread
from distxla.runtime.arrays.call_queue import CallQueue
from distxla.runtime.arrays.device_cluster import CallAreaWriter, DirectCall, DirectCluster, DirectPlace
from distxla.runtime.arrays.executable import Executable, Row
from distxla.runtime.arrays.host_calls import require_outside
from distxla.runtime.failures import stragglers
from distxla.runtime.streams.streams import Infeed, Outfeed
from distxla.wire.frame import Frame
from distxla.wire.handshake import connect
from distxla.wire.network import ANSWER_S

ATTACHING: Final = "distxla-attach"  # the thread's name, which cli/in_process/sitecustomize.py looks for
OWNER_S: Final = 60.0  # for process 0 to start the owner
_JOIN_S: Final = 5.0  # for the thread that attaches to notice the end of the cluster
_FAILED: Final = b"error "  # in place of the path
_CLOSED: Final = "the cluster is closed"


class _Direct:
    """See device_cluster.DirectCluster: all calls are the owner's to issue, none is native."""

    def __init__(self, control: int, launches: FrameLaunches) -> None:
        self.control = control
        self._launches = launches

    def place(self, executable: Executable) -> DirectPlace | None:
        return None

    def use(self, gate: int, functions: Any, hold: Callable[[object], None]) -> None: ...

    def end(self, call: DirectCall, kept: Sequence[object]) -> None:
        raise InternalError("a native call in one of several JAX processes")

    def keep(self, kept: Sequence[object]) -> None:
        self._launches.keep_after_failure(list(kept))


class AttachedCluster:
    """See device_cluster.DeviceCluster.

    compiler: of programs.  launches: the calls of this process. Both wait until all processes are there.
    """

    heap: Heap
    direct: DirectCluster

    def __init__(self, world: World, settings: OwnerSettings, store: KeyValueStore) -> None:
        """settings: equal in all processes; the process that starts the owner hands them on.  store: that of JAX."""
        self._world, self._settings, self._store = world, settings, store
        self._mine = world.slice_of(world.process)
        self._pid = os.getpid()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._answer: tuple[Frame, bytearray] | None = None
        self._answered = threading.Event()
        self._memories: AttachedMemories | None = None
        self._streams: AttachedStreams | None = None
        self._queue = CallQueue(require_outside)
        self._connection = OwnersConnection()
        self._connection.pushed |= {
            Attached: self._take_answer,
            Failed: self._take_answer,
            Ask: self._say_where,
            News: _show_news,
        }
        queue = self._queue
        self.launches = FrameLaunches(self._connection, queue.stop_reason, self._refused, queue.take_direct)
        self.compiler = OwnersCompiler(self, self._attached, self._mine, self._unload_later)
        self._spawned: OwnerProcess | None = None
        self._has_said_hello = self._has_said_bye = False

    # --- life

    @property
    def devices(self) -> int:
        return self._world.devices

    @property
    def queue(self) -> CallQueue:
        return self._queue

    def start(self) -> None:
        """Begin to attach; does not block."""
        # here, not in the thread: at the interpreter's end one that loads it would be unwound, which aborts the process
        importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        thread = threading.Thread(target=self._start, name=ATTACHING, daemon=True)
        self._thread = started_thread(thread, "the owner of the devices can't be found")
        atexit.register(self.bye)  # before JAX's own function, which ends the client

    def wait_started(self) -> None:
        """Block until all processes are there and all devices serve."""
        if self._thread is None:
            raise ClusterError("the cluster is not started")
        while self._thread.is_alive():
            self._thread.join(SLICE_S)  # in slices: Ctrl-C
        if self._closing.is_set():
            raise ClusterError(_CLOSED)
        if isinstance(self._failure, DistxlaError):
            raise self._failure
        if (why := self._failure) is not None:
            raise ClusterError(f"no access to the owner of the devices: {type(why).__name__}: {why}") from why

    def _start(self) -> None:
        try:
            self._attach()
        except BaseException as error:  # raised by `wait_started`
            self._failure = error
            if self._spawned is not None and not self._has_said_hello:  # else it ends with the last process
                self._spawned.process.terminate()

    def _attach(self) -> None:
        address, secret = read_owner(self._path())
        process = self._world.process
        connection = self._connection
        connected = connect(address, secret, frames=PROCESS_FRAMES, node=process, largest=LARGEST)
        if self._settings.address is not None:
            connected.require_answers(ANSWER_S)
        connection.start(connected)
        told = introduction(self._settings).to_json()
        connection.tell(Hello(process, self._pid, self._world.generation), [pack_json(told)])
        self._has_said_hello = True
        if self._has_said_bye:  # its script has ended, and JAX waits for the other processes
            self._tell_end()
        while not self._answered.wait(SLICE_S):
            if connection.failure is not None:
                raise connection.failure
            if self._closing.is_set():
                return
        assert self._answer is not None
        frame, payload = self._answer
        if isinstance(frame, Failed):
            raise unpack_error(unpack_json(payload))
        facts = AttachedMemory.of_json(unpack_json(payload))
        connection.watch(facts.owner, "" if facts.is_owner_here else facts.owner_host)
        self._memories = memories = AttachedMemories(facts, process, self._mine)
        self.heap = memories.heap
        allocate = partial(self.heap.allocate, of_runtime=True)
        lost, stop_reason = lambda: self.launches.lost, self._queue.stop_reason
        self._streams = AttachedStreams(memories.control, memories.memory, allocate, lost, stop_reason)
        self.direct = _Direct(memories.control.segment.address, self.launches)
        if facts.logs:
            places = SliceFacts(process, facts.slices, facts.logs)
            self.direct = self.launches.boards = BoardCalls(memories.control, places, self.launches)

    def _path(self) -> str:
        """Of the owner's file, which `distxla launch` or process 0 has told."""
        generation = self._world.generation
        if not generation and (told := os.environ.get(OWNER)):
            return told
        key = f"{generation}/owner"
        if self._world.process == 0:
            try:
                self._spawned = found = spawn_owner(self._world.processes, self._settings, guarded=False)
            except DistxlaError as error:
                self._store.put(key, _FAILED + pack_json(pack_error(error)))
                raise
            self._store.put(key, pack_paths(found.paths))
            return found.path
        try:
            value = self._store.get(key, OWNER_S)
        except ClusterError as error:
            error.add_note("hint: process 0 starts the owner of the devices when it makes its JAX client")
            raise
        if value.startswith(_FAILED):
            raise unpack_error(unpack_json(value.removeprefix(_FAILED)))
        return unpack_path(value)

    def _take_answer(self, frame: Frame, payload: bytearray) -> None:
        self._answer = frame, payload
        self._answered.set()

    def _say_where(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, Ask)
        self._connection.tell(Told(frame.request), [pack_json(where_main_is().to_json())])

    def _attached(self) -> tuple[OwnersConnection, AttachedStreams]:
        self.wait_started()
        assert self._streams is not None
        return self._connection, self._streams

    def _unload_later(self, tell: Callable[[], object]) -> None:
        """A program's executable is gone, which a native call may still run. In any thread, amid any collection."""
        boards = self.launches.boards
        if boards is None:
            tell()
        else:
            boards.when_idle(tell)

    def infeed(self, device: int) -> Infeed:
        """The input of the infeeds of a device of this process. Blocks until the devices serve. ClusterError while no
        program that has some is loaded."""
        return self._attached()[1].infeed(device)

    def outfeed(self, device: int) -> Outfeed:
        """As `infeed`, for the output of outfeeds."""
        return self._attached()[1].outfeed(device)

    def bye(self) -> None:
        """This process ends and calls nothing more. Blocks until its calls are over."""
        if self._pid != os.getpid() or self._has_said_bye:
            return
        self._has_said_bye = True
        with contextlib.suppress(DistxlaError):
            self._queue.drain()
        if self._has_said_hello:  # else it says so first
            self._tell_end()

    def _tell_end(self) -> None:
        """To the owner, which takes it once."""
        self._connection.tell(Bye(), [pack_json(own_ending())])

    def close(self) -> None:
        """Let the owner go, which others may still use; blocks until the calls of this process are over. Raises the
        failure of a call that nobody has waited for."""
        if self._pid != os.getpid():
            return
        atexit.unregister(self.bye)
        try:
            self.bye()
        finally:
            self._take_down()
        if (error := self._queue.take_unseen()) is not None:
            raise error

    def _take_down(self) -> None:
        self._closing.set()
        self._queue.close(_CLOSED)
        self._connection.close(ClusterError(_CLOSED))
        if self._streams is not None:
            self._streams.close()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        if self._memories is not None:
            self._memories.close()

    # --- memory and calls

    def memory(self, device: int) -> Segment:
        """That of a device of this process."""
        if self._memories is None:
            raise ClusterError(_CLOSED)
        return self._memories.memory(device)

    def _refused(self, launch: FrameLaunch, error: DistxlaError) -> None:
        self._queue.fail(launch, error)

    def issue(self, given: list[Executable], place: CallAreaWriter) -> None:
        """Not for several processes: `launches` issues their calls."""
        raise InternalError("a call that the other JAX processes are not told of")

    def call(self, calls: Any, *, time_limit: float | None = None, repeat: int = 1) -> list[list[Row]]:
        """As `issue`."""
        raise InternalError("a call that the other JAX processes are not told of")


def _show_news(frame: Frame, payload: bytearray) -> None:
    """What is to be known of another process: of a late one at once, of one that has ended in later errors."""
    assert isinstance(frame, News)
    if frame.kind == LATE:
        stragglers.tell([str(unpack_json(payload).get("text", ""))])


__all__ = ["AttachedCluster"]
