"""The proxy of one host of a run: joins the host's shared memory and exchanges with the other hosts' proxies over TCP.

It does for groups with members on several hosts what the last arriver does in a group on one host. Devices here
enqueue a round when all local members have arrived (collectives/protocols/proxy_queue.py). The proxy then tells the
group's other hosts that it is ready. When all are, and all run the same instruction, each sends the others the parts of
its members' operands that they need (round_plan.py, round_across_hosts.py), directly from the memory of one member into
that of the other. At the end it stores the round's phase as a member would, and wakes.

A host may be ahead of another one by as many rounds of a group as may be in flight at a time. A host that has not said
that it is ready is sent nothing but READY, with at most EAGER_ROUND_BYTES of payload, so all data that arrives has a
place to go. Frames carry the number of the epoch: those from before a failed call are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.proxy_queue import ProxyEvent
from distxla.collectives.protocols.rounds import HEAD
from distxla.collectives.transports.abort import abort
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.collectives.transports.tcp.device_queue import Queue
from distxla.collectives.transports.tcp.early_ready import EarlyRounds
from distxla.collectives.transports.tcp.frame_subjects import Names
from distxla.collectives.transports.tcp.frames import (
    PROXY_FRAMES,
    EpochFrame,
    Partial,
    Ready,
    Region,
    Result,
    RoundFrame,
)
from distxla.collectives.transports.tcp.group_state import Area, Group
from distxla.collectives.transports.tcp.injected_faults import FrameFaults, Leaving
from distxla.collectives.transports.tcp.link import Done, Link
from distxla.collectives.transports.tcp.loaded_programs import LoadedPrograms
from distxla.collectives.transports.tcp.point_to_point import Pairs
from distxla.collectives.transports.tcp.round_across_hosts import ProxyRound
from distxla.collectives.transports.tcp.round_plan import EAGER_ROUND_BYTES
from distxla.collectives.transports.tcp.scratch_memory import ReduceRun, Scratch
from distxla.collectives.transports.transport import Restart, Transport
from distxla.errors import ClusterError, DamagedMessageError, DistxlaError, InternalError
from distxla.machine.segments import Segment
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram
from distxla.targets.registry import load_image
from distxla.wire.checksums import Buffer
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame
from distxla.wire.handshake import ANY, Listener, connect
from distxla.wire.network import Network

CONNECT_S = 30.0  # until all other proxies must have connected
QUIET_S = 10.0  # until threads must have left rounds that were given up
LONG_S = 1.0  # that a round waits for other hosts before notices name it
WORKERS = 2  # threads that reduce and copy for rounds that other hosts must not wait for


class Proxy(Transport):
    """The proxy of host `host`: its end of the transport to other hosts.

    control, memories (by flattened id, None for devices elsewhere): mapped in this process.  hosts: the devices of each
    host of the run.  support: the linked loops (runtime/replica/serve.py).  secret: of this run.

    Order of use: listen on all hosts, connect on all, load programs; then devices may run. A call that failed is
    followed by `release` (while the abort flag is set) and `reset` on all hosts, before the next call on any.
    """

    def __init__(
        self,
        host: int,
        control_block: ControlBlock,
        memories: Sequence[Segment | None],
        hosts: Sequence[Sequence[int]],
        secret: bytes,
        support: CompiledProgram,
        network: Network = ANY,
    ) -> None:
        self.host, self.epoch, self.block, self._network = host, 0, control_block, network
        self.scratch = Scratch()
        self._support = load_image(support)
        self.reduce = ReduceRun(self._support)
        self._memories, self._secret = list(memories), secret
        self._bases = [0 if memory is None else memory.address for memory in memories]
        self._home = {device: index for index, devices in enumerate(hosts) for device in devices}
        self._host_count = len(hosts)
        self._links: dict[int, Link] = {}
        self._arrived = threading.Condition()
        self._listener: Listener | None = None
        self._queue = Queue(control_block)
        self._lock = threading.Lock()
        self._pairs = Pairs(self, self._home)
        self._loaded = LoadedPrograms(control_block, host, self._home, self._pairs)
        self._names = Names(control_block, self._loaded.programs, self._loaded.groups, self._pairs.messages)
        self._faults: FrameFaults | None = None
        self._rounds: dict[tuple[int, int], ProxyRound] = {}
        self._early = EarlyRounds(self._loaded.groups)
        self._takes: int | None = 0  # the epoch whose frames are taken; None while it ends
        self._inside = 0
        self._left = threading.Condition(self._lock)
        self._draining: threading.Event | None = None  # to be set by the proxy's own thread
        self._resting: threading.Event | None = None  # the same, once the queue is empty
        self._workers = ThreadPoolExecutor(WORKERS, "distxla-proxy")
        self._failure: Callable[[int, str, bool], None] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="distxla-proxy", daemon=True)

    # --- life

    def on_failure(self, callback: Callable[[int, str, bool], None]) -> None:
        """callback(host, reason, damaged): the connection to another proxy ended, or broke the protocol.

        damaged: a message on it was damaged, repeated or is missing. Called in a thread of the proxy, after the abort
        flag was set.
        """
        self._failure = callback

    def inject(self, faults: FrameFaults) -> None:
        """Inject faults into frames to other hosts. To be called before `connect`."""
        self._faults = faults

    def listen(self, address: str) -> int:
        """Accept the other proxies at this address of the node; the port."""
        self._listener = Listener(
            address,
            self._secret,
            self._accept,
            frames=PROXY_FRAMES,
            node=self.host,
            peers=self._host_count,
            network=self._network,
        )
        return self._listener.address[1]

    def connect(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Connect to the proxies of all other hosts, which listen at `addresses` (by host), and begin to serve.

        Each connection is made by the higher host number; blocks until all are there. ClusterError otherwise.
        """
        for other in range(self.host):
            connection = connect(addresses[other], self._secret, frames=PROXY_FRAMES, node=self.host)
            if connection.node != other or connection.purpose != PROXY_FRAMES.purpose:
                connection.close()
                raise ClusterError(f"the proxy at {addresses[other]} is not that of host {other}")
            self._add(connection)
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._links) == self._host_count - 1, CONNECT_S):
                missing = sorted(set(range(self._host_count)) - {self.host} - set(self._links))
                raise ClusterError(f"the proxies of hosts {missing} did not connect within {CONNECT_S:g} s")
        if self._listener is not None:
            self._listener.close()
        self._thread.start()

    def load(self, number: int, program: CompiledProgram, communicators: Mapping[int, Sequence[int | None]]) -> None:
        """See Transport."""
        self._loaded.load(number, program, communicators)

    def unload(self, number: int) -> None:
        """See Transport. The last call may have ended before its messages were sent, or the other hosts' received."""
        self._come_to_rest()
        self._loaded.unload(number)

    def _come_to_rest(self) -> None:
        """Wait until the proxy's own thread has nothing to do."""
        rested = self._resting = threading.Event()
        end = clock.now() + QUIET_S
        while self._thread.is_alive() and clock.now() < end:
            self._queue.wake()
            if rested.wait(0.01):  # else it was about to sleep
                return

    def release(self) -> None:
        """See Transport: every round is given up."""
        with self._lock:
            rounds = list(self._rounds.values())
            self._rounds.clear()
            self._early.clear()
        for round_ in rounds:
            round_.abandon()
            round_.area.wake()

    def reset(self, restart: Restart) -> None:
        """See Transport: frames of other epochs will be dropped.

        Blocks until no thread works for the call that has failed. ClusterError where that takes too long.
        """
        with self._lock:
            self._takes = None
        self._drain()
        self.release()
        with self._lock:
            if not self._left.wait_for(lambda: self._inside == 0, QUIET_S):
                raise ClusterError("the proxy still works for a call that has failed")
        self.release()  # programs that the drained rounds have left
        self._pairs.reset()
        for link in self._links.values():
            link.forget()
        with self._lock:
            self.epoch = self._takes = restart.epoch

    def _drain(self) -> None:
        """Drop the events that devices have enqueued; blocks until the proxy's own thread, the only one that takes
        them, has done so and is in no round."""
        done = self._draining = threading.Event()
        end = clock.now() + QUIET_S
        self._queue.wake()
        while not done.wait(0.01):
            if clock.now() > end:
                raise ClusterError("the proxy still works for a call that has failed")
            self._queue.wake()  # it was about to sleep

    def close(self) -> None:
        """See Transport."""
        self._closed = True
        self.release()
        if self._listener is not None:
            self._listener.close()
        for link in list(self._links.values()):
            link.close()
        self._queue.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2.0)
        self._workers.shutdown(wait=True, cancel_futures=True)

    def waits(self) -> list[str]:
        """See Transport: for which host, in what, and since when."""
        now = clock.now()
        with self._lock:
            rounds = [round_ for round_ in self._rounds.values() if now - round_.since >= LONG_S]
        lines = []
        for round_ in rounds:
            others = sorted(round_.waits_for)
            what = "to be ready for" if others else "to send or take the rest of"
            who = ", ".join(self._heard_of(host, now) for host in others or round_.group.others)
            subject = self._names.round_of(round_.group.offset, round_.number)
            lines.append(f"host {self.host} has waited {now - round_.since:.1f} s for {who} {what} {subject}")
        for since, host, place, use in self._pairs.waits(now - LONG_S):
            what = f"to send the rest of {self._names.message_at(place, use)}"
            lines.append(f"host {self.host} has waited {now - since:.1f} s for {self._heard_of(host, now)} {what}")
        return lines

    def _heard_of(self, host: int, now: float) -> str:
        link = self._links.get(host)
        return f"host {host}" if link is None else f"host {host} (last heard of {now - link.heard:.1f} s ago)"

    def base(self, device: int) -> int:
        """Where the memory of a device on this host begins in this process."""
        return self._bases[device]

    def holds(self, device: int, offset: int, size: int) -> bool:
        """Whether the memory of a device on this host has such bytes."""
        memory = self._memories[device]
        return memory is not None and offset + size <= memory.bytes.size

    def _accept(self, connection: Connection) -> None:
        if connection.purpose != PROXY_FRAMES.purpose or not self.host < connection.node < self._host_count:
            connection.close()
        else:
            self._add(connection)

    def _add(self, connection: Connection) -> None:
        with self._arrived:
            if connection.node in self._links or self._closed:
                connection.close()
                return
            connection.require_answers(self._network.lost_after)
            faults = None if self._faults is None else self._fault_of
            link = Link(connection.node, connection, self._on_frame, self._on_loss, faults)
            self._links[connection.node] = link
            self._arrived.notify_all()
        link.start()

    def _fault_of(self, target: int, frame: Frame) -> NetworkFault | None:
        """The injected fault of a frame that is about to be sent."""
        assert self._faults is not None
        fault = self._faults.outgoing(Leaving(self.host, target, self._names.subject(frame)))
        if fault is not None and fault.kind is FaultKind.CUT:
            for link in self._links.values():
                link.connection.close()
        return fault

    def _on_loss(self, host: int, error: Exception) -> None:
        if self._closed:
            return
        abort(self.block)
        self.release()
        if self._failure is not None:
            reason = error.message if isinstance(error, DistxlaError) else f"{type(error).__name__}: {error}"
            damaged = isinstance(error, DamagedMessageError)
            if isinstance(error, DamagedMessageError) and isinstance(error.frame, Frame):
                reason = f"{reason} ({self._names.subject(error.frame)})"
            self._failure(host, reason, damaged)

    # --- events from devices

    def _serve(self) -> None:
        while not self._closed:
            if self._draining is not None:
                while self._queue.take(0) is not None:
                    pass
                draining, self._draining = self._draining, None
                draining.set()
            found = self._queue.take(0 if self._resting is not None else 0.5)
            if found is None and self._resting is not None:
                resting, self._resting = self._resting, None
                resting.set()
                continue
            try:
                if found is None:
                    self._pairs.look()
                elif found[1] == ProxyEvent.ROUND:
                    self._begin(self._loaded.areas[found[0]])
                else:
                    self._pairs.handle(*found)
            except Exception as error:
                self._on_loss(self.host, error)

    def _begin(self, area: Area) -> None:
        """All local members of a group have reached a round."""
        group, number = area.group, area.number
        signature, site, device = area.head(group.local[0])
        agree = all(area.head(p)[0] == signature for p in group.local)
        round_ = ProxyRound(self, area, number, self._loaded.plan(area, signature, site, device) if agree else None)
        heads = area.copy_heads(group.local)
        # before others can find the round: at its end operands may be overwritten by results
        payloads: dict[int, list[Buffer]] = {
            host: [heads, *round_.eager(host)] if agree else [heads] for host in group.others
        }
        key = (group.offset, number)
        with self._lock:
            epoch = self.epoch
            self._rounds[key] = round_
            early = self._early.take(key)
        for host, parts in payloads.items():
            self._links[host].post(Ready(epoch, group.offset, number), parts, urgent=True)
        for host, payload in early.items():
            self._host_ready(round_, host, payload)

    # --- frames from other hosts

    def _on_frame(self, link: Link, frame: EpochFrame) -> None:
        with self._lock:
            current = frame.epoch == self._takes
            if current:
                self._inside += 1
        if not current:
            link.connection.discard()
            return
        try:
            self._take_frame(link, frame)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._left.notify_all()

    def _take_frame(self, link: Link, frame: EpochFrame) -> None:
        if isinstance(frame, Ready):
            self._take_ready(link, frame)
        elif isinstance(frame, RoundFrame):
            self._take_piece(link, frame)
        else:
            self._pairs.receive(link, frame)

    def _take_piece(self, link: Link, frame: RoundFrame) -> None:
        """A piece of another host's data for a round."""
        round_ = self._rounds.get((frame.group, frame.round))
        if round_ is None:
            if self.block.load(control_words.H_ABORT) == 0:
                raise ClusterError(f"host {link.host} sent bytes for a round that has not begun here")
            link.connection.discard()
            return
        size, receive = link.connection.length, link.connection.receive_into
        if isinstance(frame, Region):
            round_.receive_region(link.host, frame.region, frame.offset, size, receive)
        elif isinstance(frame, Partial):
            round_.receive_partial(link.host, frame.stream, frame.run, frame.offset, size, receive)
        elif isinstance(frame, Result):
            round_.receive_result(link.host, frame.stream, frame.offset, size, receive)
        else:
            raise InternalError(f"a round does not take {frame}")

    def _take_ready(self, link: Link, frame: Ready) -> None:
        """Another host is ready for a round, which may not have begun here, or be of a program that never runs here."""
        key, size = (frame.group, frame.round), link.connection.length
        if size > HEAD.size * control_words.MOST_DEVICES + EAGER_ROUND_BYTES:
            raise ClusterError(f"host {link.host} sent {size} bytes to say that it is ready")
        group = self._loaded.groups.get(frame.group)
        if group is not None:
            self._check_ready(group, link.host, size)
        payload = memoryview(link.connection.receive_bytes())
        with self._lock:
            round_ = self._rounds.get(key)
            if round_ is None:
                self._early.keep(link.host, key, payload)
        if round_ is not None:
            self._host_ready(round_, link.host, payload)

    @staticmethod
    def _check_ready(group: Group, host: int, length: int) -> None:
        least = HEAD.size * len(group.positions.get(host, ()))
        if not 0 < least <= length <= least + EAGER_ROUND_BYTES:
            raise ClusterError(f"host {host} is ready for a group that it has no such part in")

    def _host_ready(self, round_: ProxyRound, host: int, payload: memoryview) -> None:
        """Another host is ready for a round that is in flight here; the last one starts its work."""
        group, area = round_.group, round_.area
        self._check_ready(group, host, len(payload))
        positions = group.positions[host]
        heads = HEAD.size * len(positions)
        area.mark_begun(positions)
        area.paste_heads(positions, payload[:heads])
        mine = area.head(group.local[0])[0]
        if round_.plan is not None and all(area.head(p)[0] == mine for p in positions):
            round_.take_eager(host, payload[heads:])
        with self._lock:
            if host not in round_.waits_for:
                raise ClusterError(f"host {host} is ready twice for one round")
            round_.waits_for.discard(host)
            if round_.waits_for or round_.is_over:
                return
            self._inside += 1
        if any(area.head(p)[0] != mine for p in range(len(group.members))):
            self._leave()
            self.finish(round_, Status.MISMATCH, 0)
        elif round_.is_short:
            self._start(round_)
        else:
            self._workers.submit(self._start, round_)

    def _start(self, round_: ProxyRound) -> None:
        try:
            round_.start()
        except Exception as error:
            self._on_loss(self.host, error)
        finally:
            self._leave()

    def finish(self, round_: ProxyRound, outcome: Status, once: int) -> None:
        """The round is over here."""
        with self._lock:
            if self._rounds.pop((round_.group.offset, round_.number), None) is None:
                return  # dropped since
        round_.area.finish(outcome, once)

    # --- frames to other hosts

    def send_piece(
        self, round_: ProxyRound, host: int, number: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """A piece of an operand. `done` is called when `piece` may change."""
        self.post(host, Region(self.epoch, round_.group.offset, number, round_.number, offset), [piece], done=done)

    def send_partial(
        self, round_: ProxyRound, host: int, number: int, run: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """A piece of a partial result for a run on another host."""
        frame = Partial(self.epoch, round_.group.offset, number, run, round_.number, offset)
        self.post(host, frame, [piece], done=done)

    def send_result(
        self, round_: ProxyRound, host: int, number: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """A piece of a result."""
        frame = Result(self.epoch, round_.group.offset, number, round_.number, offset)
        self.post(host, frame, [piece], done=done)

    def post(
        self,
        host: int,
        frame: Frame,
        payload: Sequence[Buffer],
        *,
        urgent: bool = False,
        done: Done | None = None,
    ) -> None:
        """Send a frame to another host's proxy; as Link.post."""
        self._links[host].post(frame, payload, urgent=urgent, done=done)
