"""The owner of the devices that several JAX processes share: it talks to all of them, and they to it alone."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from distxla import clock
from distxla.errors import ClusterError, DistxlaError, raised
from distxla.jax.partitioner.early_start import Needed, keep_needed, start_for
from distxla.jax.partitioner.partitioned_bytes import pack_partitioned
from distxla.jax.processes import messages
from distxla.jax.processes.endings import Endings, ending_of
from distxla.jax.processes.facts import CompileRequest, PartitionRequest
from distxla.jax.processes.late import LateWatch, Questions, doing_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Ending
from distxla.jax.processes.machines import Machines
from distxla.jax.processes.messages import PROCESS_FRAMES, pack_json, pack_parts, unpack_json, unpack_parts
from distxla.jax.processes.owned_calls import OwnedCalls
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.owned_programs import OwnedPrograms
from distxla.jax.processes.owner_file import OwnerFile, machine_of_process
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.places import Stack
from distxla.jax.processes.said import guarded, say
from distxla.jax.processes.told_errors import pack_error, unpack_error
from distxla.jax.processes.world import Introduction, World, require_equal
from distxla.lazy_dataclass import replace
from distxla.machine.processes import main_thread_at
from distxla.wire.checksums import Buffer
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame
from distxla.wire.handshake import Listener, new_secret
from distxla.wording import processes_named

FIRST_S: Final = 120.0  # for a process to come, while none is there
LEFT_S: Final = 5.0  # the same, where none will be served and the one that has started the owner is gone
LOOK_S: Final = 0.2
NOTICE_S: Final = 1.0  # that a process waits for one that has not come
_KEY: Final = re.compile("[0-9a-f]{64}")  # of an entry of the cache


class Peer:
    """A JAX process that has said hello."""

    def __init__(self, process: int, pid: int, introduction: Introduction, connection: Connection) -> None:
        self.process, self.pid, self.introduction, self.connection = process, pid, introduction, connection
        self.has_said_bye = False

    def tell(self, frame: Frame, payload: list[Buffer] | None = None) -> None:
        """Never raises: a process that has ended is told nothing."""
        with suppress(ClusterError):
            self.connection.send(frame, payload or [])


class Owner:
    """Serves so many JAX processes. path: of the file that tells them where (owner_file.py).

    news: gets what a launcher wants to know: {"came": process}, {"attached": n}, {"verdict": error}, {"ended": ...};
    without one, verdicts go to stderr.  launched: a launcher starts the processes where `machines` says.  issues_all:
    processes issue no calls themselves, as where they are on several machines.
    machines: where they are.  paths: of files that tell where it listens, by machine.
    ClusterError where the Ray at the address can't be joined.
    """

    def __init__(
        self,
        settings: OwnerSettings,
        processes: int,
        news: Callable[[dict[str, Any]], None] | None = None,
        *,
        launched: bool = False,
        issues_all: bool = False,
    ) -> None:
        self.settings = settings
        self.world = World(0, processes, settings.local)
        self.peers: dict[int, Peer] = {}
        self._news, self._issues_all = news, issues_all
        self._lock = threading.Lock()  # of what follows
        self._came: set[int] = set()  # the processes that have said hello, those that are gone, too
        self._failure: DistxlaError | None = None  # why no process can attach
        self._are_attached = False
        self._needed: tuple[str, Needed | None] | None = None
        self._changed = threading.Event()
        self._changed_at = clock.now()
        self._first_at = math.inf  # when the first process came
        self._pool = ThreadPoolExecutor(2 * processes + 2, thread_name_prefix="distxla-serve")
        self.cluster = OwnedCluster(
            [self.world.slice_of(process) for process in range(processes)],
            address=settings.address,
            device_memory=settings.device_memory,
            backend=settings.backend,
        )
        self.programs = OwnedPrograms(self.cluster, self.world)
        parts = self.cluster, self.programs, self.world, settings.stall_limit
        self.calls = OwnedCalls(*parts, self._tell, self._judged, self._main_thread)
        self.machines = Machines(self.cluster, self.world, settings)
        self.endings = Endings(self.ended, self._died, self.machines.name_of)
        self.questions = Questions(self._ask)
        self._late = LateWatch(self.calls.look, self._where, self._tell_late)
        secret = new_secret()
        self._start()
        self._listener = Listener(
            self.machines.listens_on(),
            secret,
            self._on_connection,
            frames=PROCESS_FRAMES,
            node=0,
            peers=processes,
            largest=messages.LARGEST,
        )
        self._file = OwnerFile(self._listener.address, secret)
        self.path = self._file.path
        self.paths = {**self.machines.begin(self._listener.address, secret, launched), machine_of_process(): self.path}

    # --- life

    def serve(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Block until the last process is gone, or `stop` says so, and then until all is taken down."""
        try:
            notice = NOTICE_S
            while not stop() and not self._is_over():
                self._changed.wait(LOOK_S)
                self._changed.clear()
                notice = self._tell_missing(notice)
        finally:
            self.close()

    def close(self) -> None:
        """Processes that are still there lose their devices. Twice is fine."""
        self._listener.close()
        self._late.close()
        self.calls.close()
        self.endings.close()
        with self._lock:
            peers = list(self.peers.values())
        for peer in peers:
            peer.connection.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.machines.close()
        needed, self._needed = self._needed, None
        if needed is not None:
            keep_needed(*needed)
        try:
            self.cluster.close()
        finally:
            self._file.close()

    def _start(self) -> None:
        try:
            self.cluster.start()
        except DistxlaError as error:
            self._fail(error)

    def _is_over(self) -> bool:
        with self._lock:
            if self.peers or self.endings.is_one_lost():
                return False
            return len(self._came) == self.world.processes or clock.now() - self._changed_at > FIRST_S

    def _tell_missing(self, notice: float) -> float:
        """Tell the processes that are there of those that have not used their devices yet, after 1 s, 2 s, 4 s, ... of
        waiting for them. notice: seconds until the next time; returns those until the one after it."""
        with self._lock:
            there = sorted(self.peers)
            missing = [process for process in range(self.world.processes) if process not in self._came]
            waited = clock.now() - self._first_at
        if not there or not missing or self._failure is not None or waited < notice:
            return notice
        verb, have = ("waits" if len(there) == 1 else "wait"), ("has" if len(missing) == 1 else "have")
        text = (
            f"{processes_named(there)} {verb} for {processes_named(missing)}, which {have} not used "
            f"{'its' if len(missing) == 1 else 'their'} devices yet [{waited:.1f} s so far]"
        )
        for process in there:
            self._tell_late(process, missing[0], text)
        return 2 * notice

    def give_up(self, starter: int) -> bool:
        """The process that has started the owner is gone: whether nothing can come of it any more. starter: its index,
        if it is one of those that are served."""
        with self._lock:
            if starter in self._came:  # others that come are told why they can't be served
                is_left = self._failure is not None and not self.peers and not self.endings.is_one_lost()
                return is_left and clock.now() - self._changed_at >= LEFT_S
        self._fail(ClusterError(f"process {starter}, which has started the owner of the devices, has ended"))
        with self._lock:
            return not self.peers

    # --- processes

    def _on_connection(self, connection: Connection) -> None:
        """In a thread of the connection's own."""
        peer: Peer | None = None
        try:
            frame = connection.receive()
            peer = self._welcomed(frame, connection.receive_bytes(), connection)
            while peer is not None:
                frame = connection.receive()
                payload = connection.receive_bytes()
                try:
                    self._handle(peer, frame, payload)
                except DistxlaError as error:
                    say(f"process {peer.process} has broken the protocol, and is not served any more: {error.message}")
                    return
                except Exception as error:  # of the owner: the process has done nothing wrong
                    self._failed(peer, frame, ClusterError(f"{frame.NAME} of process {peer.process}: {raised(error)}"))
        except DistxlaError:
            return  # its end
        finally:
            connection.close()
            if peer is not None:
                self._gone(peer)

    def _welcomed(self, frame: Frame, payload: bytearray, connection: Connection) -> Peer | None:
        """The process that says hello; None where it can't be served, which it is told."""
        try:
            if not isinstance(frame, messages.Hello):
                raise ClusterError(f"expected HELLO, found {frame.NAME}")
            self._require_new(frame.process)
        except DistxlaError as error:
            _refuse(connection, error)
            return None
        try:
            introduction = Introduction.of_json(unpack_json(payload))
            if introduction.devices != self.settings.local:
                raise ClusterError(
                    f"process {frame.process} has {introduction.devices} devices, and the owner was started for "
                    f"{self.settings.local} of each process: give each process the same DISTXLA_DEVICES"
                )
        except DistxlaError as error:
            self._fail(error)
        with self._lock:
            failure = self._failure
            if failure is None:
                self._note_coming(frame.process)
                peer = self.peers[frame.process] = Peer(frame.process, frame.pid, introduction, connection)
                is_last = len(self._came) == self.world.processes
        if failure is not None:
            _refuse(connection, failure)
            with self._lock:  # not before: with the last one the owner ends
                self._note_coming(frame.process)
            self._changed.set()
            return None
        self._say_news({"came": frame.process})
        self.machines.came(connection)
        if introduction.machine in ("", machine_of_process()) and not self.machines.host_of(frame.process):
            self.endings.watch(frame.process, frame.pid)
        if frame.process == 0 and _KEY.fullmatch(introduction.needed):
            self._later(lambda: self._start_early(introduction.needed))
        if is_last:
            self._later(self._attach)
        return peer

    def _note_coming(self, process: int) -> None:
        """With the lock: a process has said hello."""
        self._came.add(process)
        self._changed_at = clock.now()
        self._first_at = min(self._first_at, self._changed_at)

    def _start_early(self, key: str) -> None:
        """Start what the script's programs will need, and keep at the end what its next run will."""
        self._needed = key, start_for(key)

    def _require_new(self, process: int) -> None:
        with self._lock:
            if process >= self.world.processes:
                raise ClusterError(f"process {process}: there are {self.world.processes}")
            if process in self._came:
                there = self.peers.get(process)
                whose = "" if there is None else f", with pid {there.pid}"
                raise ClusterError(f"process {process} has come already{whose}")

    def _attach(self) -> None:
        """All processes are there: tell them where the devices' memories are."""
        self._listener.close()
        self._file.close()  # which nobody needs any more
        try:
            require_equal(given := self._introductions())
            self.settings.require_those_of(given[0])
            memories = self.machines.memories(given)
            logs = () if self._issues_all else self.programs.logs.open()
        except DistxlaError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(ClusterError(f"the devices could not be started: {raised(error)}"))
        else:
            self._are_attached = True
            with self._lock:
                pids = {process: peer.pid for process, peer in self.peers.items()}
            self.machines.watch(pids, self.endings.died_elsewhere)
            for process, memory in enumerate(memories):
                self._tell(process, messages.Attached(), [pack_json(replace(memory, logs=logs).to_json())])
            self._say_news({"attached": self.world.processes})

    def _introductions(self) -> list[Introduction]:
        """ClusterError where a process has ended meanwhile."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return [self.peers[process].introduction for process in range(self.world.processes)]

    def _fail(self, error: DistxlaError) -> None:
        """No process will be served."""
        with self._lock:
            self._failure = self._failure or error
        self._tell_all(messages.Failed(0), [pack_json(pack_error(error))])

    def _gone(self, peer: Peer) -> None:
        """The connection of a process has ended."""
        self.endings.lost(peer.process)  # first: the owner goes on until that is told
        with self._lock:
            del self.peers[peer.process]
            is_early = not self._are_attached
            self._changed_at = clock.now()
        if is_early:
            self._fail(ClusterError(f"process {peer.process} (pid {peer.pid}) has ended before the devices served"))
        self.programs.drop_all(peer.process)
        self._changed.set()

    def ended(self, process: int, how: Ending) -> None:
        """A process has ended, or says that it does; once."""
        self.calls.ended(process, how)
        site = str(how.site) if how.site.line else ""
        self._say_news(
            {"ended": {"process": process, "how": how.how, "error": how.error, "site": site, "signal": how.signal}}
        )

    def _died(self, process: int) -> None:
        """The process is gone. A child of its own may hold its connection open."""
        peer = self.peers.get(process)
        if peer is not None:
            peer.connection.close()

    # --- what is told

    def _ask(self, process: int, request: int) -> bool:
        peer = self.peers.get(process)
        if peer is not None:
            peer.tell(messages.Ask(request))
        return peer is not None

    def _where(self, processes: Sequence[int]) -> dict[int, str]:
        """What processes do, to follow "process 1: "."""
        pids = {process: peer.pid for process in processes if (peer := self.peers.get(process)) is not None}
        stacks = self.questions.ask(list(pids))
        here = {process: None if self.machines.host_of(process) else pid for process, pid in pids.items()}
        return {process: doing_of(stacks.get(process), pid) for process, pid in here.items()}

    def _main_thread(self, process: int) -> tuple[str, int] | None:
        peer = self.peers.get(process)
        return None if peer is None or self.machines.host_of(process) else main_thread_at(peer.pid)

    def _tell_late(self, process: int, late: int, text: str) -> None:
        self._tell(process, messages.News(late, messages.LATE), [pack_json({"text": text})])

    def _tell(self, process: int, frame: Frame, payload: list[Buffer]) -> None:
        peer = self.peers.get(process)
        if peer is not None:
            peer.tell(frame, payload)

    def _tell_all(self, frame: Frame, payload: list[Buffer]) -> None:
        with self._lock:
            peers = list(self.peers.values())
        for peer in peers:
            peer.tell(frame, payload)

    def _judged(self, error: DistxlaError) -> None:
        if self._news is None:
            say(str(error))  # JAX may end a process before it says so itself
        else:
            self._say_news({"verdict": pack_error(error)})

    def _say_news(self, news: dict[str, Any]) -> None:
        if self._news is not None:
            self._news(news)

    # --- frames

    def _handle(self, peer: Peer, frame: Frame, payload: bytearray) -> None:
        handler = HANDLERS.get(type(frame))
        if handler is None:
            raise ClusterError(f"a {frame.NAME} frame, which the owner does not take")
        handler(self, peer, frame, payload)

    def _failed(self, peer: Peer, frame: Frame, error: ClusterError) -> None:
        """A frame could not be handled: nobody waits for what it asks."""
        say(str(error))
        if isinstance(frame, messages.Partition | messages.Compile | messages.Load):
            peer.tell(messages.Failed(frame.request), [pack_json(pack_error(error))])
        elif isinstance(frame, messages.Launch | messages.Ready | messages.Trouble | messages.Served):
            trouble = messages.Trouble(frame.set, frame.ordinal, messages.CALLBACK)
            guarded(lambda: self.calls.trouble(peer.process, trouble, error))

    def _later(self, work: Callable[[], None]) -> None:
        """Have it done by another thread; nothing is done any more once the owner is closed."""
        with suppress(RuntimeError):
            self._pool.submit(guarded, work)

    def answer(self, peer: Peer, request: int, work: Callable[[], tuple[Frame, list[Buffer]]]) -> None:
        """Answer a request by what `work` gives, or raises, in another thread."""

        def answered() -> None:
            try:
                frame, payload = work()
            except BaseException as error:
                frame, payload = messages.Failed(request), [pack_json(pack_error(error))]
            peer.tell(frame, payload)

        self._later(answered)


def _refuse(connection: Connection, error: DistxlaError) -> None:
    with suppress(ClusterError):
        connection.send(messages.Failed(0), [pack_json(pack_error(error))])


def _partition(owner: Owner, peer: Peer, frame: messages.Partition, payload: bytearray) -> None:
    head, module = unpack_parts(payload)
    request = PartitionRequest.of_json(head)

    def work() -> tuple[Frame, list[Buffer]]:
        found = owner.programs.partition(request, bytes(module))
        return messages.Answer(frame.request), [pack_partitioned(found)]

    owner.answer(peer, frame.request, work)


def _compile(owner: Owner, peer: Peer, frame: messages.Compile, payload: bytearray) -> None:
    head, packed = unpack_parts(payload)
    request = CompileRequest.of_json(head)

    def work() -> tuple[Frame, list[Buffer]]:
        found = owner.programs.compile(peer.process, request, packed)
        return messages.Compiled(frame.request, found.program), pack_parts(found.facts.to_json(), found.pickled)

    owner.answer(peer, frame.request, work)


def _load(owner: Owner, peer: Peer, frame: messages.Load, payload: bytearray) -> None:
    def work() -> tuple[Frame, list[Buffer]]:
        facts = owner.programs.load(peer.process, frame.program)
        return messages.Loaded(frame.request, facts.number), [pack_json(facts.to_json())]

    owner.answer(peer, frame.request, work)


def _drop(owner: Owner, peer: Peer, frame: messages.Drop, payload: bytearray) -> None:
    owner.programs.drop(peer.process, frame.program)


def _launch(owner: Owner, peer: Peer, frame: messages.Launch, payload: bytearray) -> None:
    owner.calls.launch(peer.process, frame, LaunchSite.unpack(payload))


def _ready(owner: Owner, peer: Peer, frame: messages.Ready, payload: bytearray) -> None:
    owner.calls.ready(peer.process, frame, bytes(payload))


def _trouble(owner: Owner, peer: Peer, frame: messages.Trouble, payload: bytearray) -> None:
    told = unpack_json(payload) if payload else {}
    why = told.get("error")
    error = unpack_error(why) if why is not None else ClusterError("the process does not say why")
    owner.calls.trouble(peer.process, frame, error, by_argument=told.get("by_argument") is True)


def _served(owner: Owner, peer: Peer, frame: messages.Served, payload: bytearray) -> None:
    owner.calls.served(peer.process, frame)


def _bye(owner: Owner, peer: Peer, frame: messages.Bye, payload: bytearray) -> None:
    owner.endings.said(peer.process, ending_of(payload))


def _told(owner: Owner, peer: Peer, frame: messages.Told, payload: bytearray) -> None:
    owner.questions.told(frame.request, Stack.of_json(unpack_json(payload)))


Handler = Callable[[Owner, Peer, Any, bytearray], None]
HANDLERS: Final[dict[type[Frame], Handler]] = {
    messages.Partition: _partition,
    messages.Compile: _compile,
    messages.Load: _load,
    messages.Drop: _drop,
    messages.Launch: _launch,
    messages.Ready: _ready,
    messages.Trouble: _trouble,
    messages.Served: _served,
    messages.Bye: _bye,
    messages.Told: _told,
}


__all__ = ["HANDLERS", "Owner", "Peer"]
