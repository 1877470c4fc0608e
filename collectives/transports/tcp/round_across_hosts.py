"""One round of a group across hosts, on one of them: the bytes still to arrive and to send, and the work here."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from distxla import clock
from distxla.collectives.transports.tcp.addressed_round import AddressedRound
from distxla.collectives.transports.tcp.group_state import Area
from distxla.collectives.transports.tcp.link import Done
from distxla.collectives.transports.tcp.round_plan import Algorithm, PlannedRegion, RoundPlan, Rows, Stream
from distxla.collectives.transports.tcp.scratch_memory import FRAME_PIECE_BYTES, ReduceRun, Scratch, rows_at, view
from distxla.errors import ClusterError
from distxla.ir.unwritten import empty
from distxla.program.abi import Status
from distxla.wire.checksums import Buffer

WINDOW = 8  # reduced pieces of one round that wait to be sent


class Exchange(Protocol):
    """The proxy's methods that a round calls."""

    host: int
    scratch: Scratch
    reduce: ReduceRun

    def base(self, device: int) -> int:
        """Where the memory of a device on this host begins in this process."""

    def send_piece(
        self, round_: ProxyRound, host: int, number: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """Send a piece of an operand. `done` is called when `piece` may change."""

    def send_partial(
        self, round_: ProxyRound, host: int, number: int, run: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """Send a piece of a partial result for a run on another host."""

    def send_result(
        self, round_: ProxyRound, host: int, number: int, offset: int, piece: memoryview, done: Done
    ) -> None:
        """Send a piece of a result."""

    def finish(self, round_: ProxyRound, outcome: Status, once: int) -> None:
        """The round is over here."""


class ProxyRound:
    """A round that all local members have reached.

    Methods are called by several threads; those that write to different places run at the same time. The round
    ends once, when all expected bytes have arrived, all were sent, and the work of this host is done.
    """

    def __init__(self, proxy: Exchange, area: Area, number: int, plan: RoundPlan | None) -> None:
        """plan: None where the local members have different instructions."""
        self.proxy, self.area, self.group, self.number, self.plan = proxy, area, area.group, number, plan
        self.waits_for = set(self.group.others)
        self.since = clock.now()
        self.is_over = False
        self._lock = threading.Lock()
        self._left = 1  # bytes to arrive, frames to leave; and 1 for the work of `start`
        self._once = 0
        self._window = threading.Semaphore(WINDOW)
        self._mirrors: dict[tuple[int, int], np.ndarray[tuple[int, ...], np.dtype[np.uint8]]] = {}
        if plan is None:
            return
        group, first = self.group, self.group.local[0]
        work = plan.loaded.work
        if work.shares and all(area.shares(p) for p in group.local):
            leaves = range(work.operands + work.results, work.operands + 2 * work.results)
            if all(area.posted(p, leaf) == area.posted(first, leaf) for p in group.local for leaf in leaves):
                self._once = 1 + first
        if plan.algorithm is Algorithm.CHAIN:
            for stream in plan.streams:
                mine = sum(host == proxy.host for host, _ in plan.runs[1:])
                self._left += stream.taken.bytes * (mine + (proxy.host in stream.path))
        elif plan.algorithm is Algorithm.DIRECT:
            self._left += sum(region.taken.bytes for regions in plan.incoming.values() for region in regions)
        if plan.needs_operands and plan.algorithm is not Algorithm.CHAIN:
            self._make_mirrors(plan)

    @property
    def is_short(self) -> bool:
        """Whether `start` takes so little time that the thread which hears of the last host may do it."""
        return self.plan is not None and self.plan.algorithm is Algorithm.EAGER

    # --- places

    def operand(self, position: int, rows: Rows) -> int:
        """Where rows of a local member's operand begin."""
        return self.proxy.base(self.group.members[position]) + self.area.posted(position, rows.leaf) + rows.offset

    def results(self, targets: tuple[int, ...], rows: Rows, common: int) -> list[int]:
        """Where rows of a result begin for each local target; once, where all local members share one place."""
        if self._once and common:
            place = self.area.posted(self._once - 1, common)
            if place:
                return [self.proxy.base(self.group.members[self._once - 1]) + place + rows.offset]
        group, area, base = self.group, self.area, self.proxy.base
        here = self.proxy.host
        return [
            base(group.members[p]) + area.posted(p, rows.leaf) + rows.offset for p in targets if group.homes[p] == here
        ]

    def _make_mirrors(self, plan: RoundPlan) -> None:
        """Memory for remote members' operands, of which only the parts needed here will be filled."""
        ends: dict[tuple[int, int], int] = {}
        for regions in plan.incoming.values():
            for region in regions:
                rows = region.taken
                end = rows.offset + (rows.rows - 1) * rows.stride + rows.row
                key = (region.source, rows.leaf)
                ends[key] = max(end, ends.get(key, 0))
        for key, end in ends.items():
            self._mirrors[key] = empty([end], np.uint8)

    def _destinations(self, region: PlannedRegion) -> list[int]:
        """Where the bytes of an incoming region go; the distance of their rows is `region.given` or `taken`."""
        if region.targets:
            return self.results(region.targets, region.given, region.common)
        return [int(self._mirrors[region.source, region.taken.leaf].ctypes.data) + region.taken.offset]

    # --- operands that travel with READY

    def eager(self, host: int) -> list[Buffer]:
        """The bytes that another host gets at once; a copy, because the operands may be results as well."""
        assert self.plan is not None
        parts: list[Buffer] = []
        for region in self.plan.outgoing.get(host, ()) if self.plan.algorithm is Algorithm.EAGER else ():
            rows, address = region.taken, self.operand(region.source, region.taken)
            if rows.is_whole:
                parts.append(ctypes.string_at(address, rows.bytes))
            else:
                parts.append(rows_at(address, rows.rows, rows.row, rows.stride).tobytes())
        return parts

    def take_eager(self, host: int, payload: memoryview) -> None:
        """Copy the eager bytes to their places."""
        assert self.plan is not None
        if self.plan.algorithm is not Algorithm.EAGER:
            return
        begin = 0
        for region in self.plan.incoming[host]:
            size = region.taken.bytes
            self._put(region, np.frombuffer(payload, np.uint8, size, begin))
            begin += size
        if begin != len(payload):
            raise ClusterError(f"host {host} sent {len(payload)} bytes for a round that takes {begin}")

    def _put(self, region: PlannedRegion, data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
        """Write a whole region."""
        rows = _given(region)
        for place in self._destinations(region):
            if rows.is_whole:
                ctypes.memmove(place, data.ctypes.data, rows.bytes)
            else:
                rows_at(place, rows.rows, rows.row, rows.stride)[:] = data.reshape(rows.rows, rows.row)

    # --- the work of this host

    def start(self) -> None:
        """All hosts are ready, and agree: send the operands that others need, and do the items that need none."""
        plan = self.plan
        assert plan is not None
        if plan.algorithm is Algorithm.CHAIN:
            if plan.runs[0][0] == self.proxy.host:
                for number in range(len(plan.streams)):
                    self._begin_chain(number)
        else:
            if plan.algorithm is Algorithm.DIRECT:
                for host, regions in plan.outgoing.items():
                    for number, region in enumerate(regions):
                        self._send_region(host, number, region)
            if not plan.needs_operands:
                self._do_items(plan)
        self.settle(1)

    def settle(self, amount: int) -> None:
        """`amount` less is left; the last one ends the round."""
        with self._lock:
            self._left -= amount
            if self._left or self.is_over:
                return
            self.is_over = True
        if self.plan is not None and self.plan.needs_operands and self.plan.algorithm is not Algorithm.CHAIN:
            self._do_items(self.plan)
        self.proxy.finish(self, Status.OK, self._once)

    def abandon(self) -> None:
        """The call has failed: nothing of this round is done any more."""
        with self._lock:
            self.is_over = True
        self._window.release(WINDOW)

    def _owe(self, amount: int) -> None:
        with self._lock:
            self._left += amount

    def _do_items(self, plan: RoundPlan) -> None:
        """Call the program's own function for the results of local members: reductions of all, or copies from local
        members."""
        group, loaded, base = self.group, plan.loaded, self.proxy.base
        work, here = loaded.work, AddressedRound(loaded, self.group.members)
        count = work.operands + work.results
        for p in group.local:
            own = base(group.members[p])
            here.post(p, 0, [own + self.area.posted(p, leaf) for leaf in range(count)])
        for (p, leaf), mirror in self._mirrors.items():
            here.post(p, leaf, [int(mirror.ctypes.data)])
        here.keep()
        results = [here.posted(p, work.operands, work.results) for p in group.local]
        for m in loaded.movements:
            sources = [0] if plan.needs_operands else [p for p in group.local if p < m.sources]
            here.restore()
            if m.targets > 1:
                for s in sources:
                    for t in group.local:
                        here.do_items(len(group.members), m.item(s, t), m.item(s, t) + m.pieces)
                continue
            # common results go to the first places of the table, one for each local member
            for position, given in enumerate(results):
                here.post(position, work.operands, given)
            if self._once:
                shared = [self.area.posted(self._once - 1, count + leaf) for leaf in range(work.results)]
                own = base(group.members[self._once - 1])
                here.post(0, count, [own + place if place else 0 for place in shared])
                here.write_once()
            for s in sources:
                here.do_items(len(results), m.item(s, 0), m.item(s, 0) + m.pieces)

    # --- copies

    def _send_region(self, host: int, number: int, region: PlannedRegion) -> None:
        rows = region.taken
        address = self.operand(region.source, rows)
        for offset, size in _pieces(rows, _given(region)):
            if rows.is_whole:
                self._owe(1)
                self.proxy.send_piece(self, host, number, offset, view(address + offset, size), lambda: self.settle(1))
                continue
            scratch = self._window_piece(size)
            if scratch is None:
                return
            piece = _piece_at(address, rows, offset, size)
            scratch[:size].reshape(piece.shape)[:] = piece
            self._owe(1)
            done = self._giving_back(scratch, window=True)
            self.proxy.send_piece(self, host, number, offset, scratch[:size].data, done)

    def receive_region(
        self, host: int, number: int, offset: int, size: int, receive: Callable[[memoryview], None]
    ) -> None:
        """Take a piece of a region from a connection."""
        if self.plan is None or self.plan.algorithm is not Algorithm.DIRECT:
            raise ClusterError(f"host {host} sent bytes that no round expects")
        regions = self.plan.incoming[host]
        if number >= len(regions) or not _is_piece(_given(regions[number]), offset, size):
            raise ClusterError(f"host {host} sent bytes beyond what a round expects")
        region = regions[number]
        rows = _given(region)
        places = self._destinations(region)
        if rows.is_whole:
            receive(view(places[0] + offset, size))
            if len(places) > 1:
                first = places[0] + offset
                self.proxy.reduce([p + offset for p in places[1:]], [first], size, streamed=region.streamed)
        else:
            scratch = self.proxy.scratch.take(size)
            receive(scratch[:size].data)
            self._scatter(scratch, places, rows, offset, size)
            self.proxy.scratch.give(scratch)
        self.settle(size)

    @staticmethod
    def _scatter(
        data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], places: list[int], rows: Rows, offset: int, size: int
    ) -> None:
        for place in places:
            there = _piece_at(place, rows, offset, size)
            there[:] = data[:size].reshape(there.shape)

    # --- reductions along the runs

    def _begin_chain(self, number: int) -> None:
        """Reduce the first run's members and send the pieces on."""
        assert self.plan is not None
        stream, (_, positions), next_host = self.plan.streams[number], self.plan.runs[0], self.plan.runs[1][0]
        rows = stream.taken
        for offset, size in _pieces(rows, stream.given):
            if self.is_over:
                return
            if len(positions) == 1 and rows.is_whole:
                self._owe(1)
                piece = view(self.operand(positions[0], rows) + offset, size)
                self.proxy.send_partial(self, next_host, number, 1, offset, piece, lambda: self.settle(1))
                continue
            scratch = self._window_piece(size)
            if scratch is None:
                return
            self._reduce(stream, [int(scratch.ctypes.data)], [], positions, offset, size)
            self._owe(1)
            done = self._giving_back(scratch, window=True)
            self.proxy.send_partial(self, next_host, number, 1, offset, scratch[:size].data, done)

    def _reduce(
        self, stream: Stream, targets: list[int], before: list[int], positions: tuple[int, ...], offset: int, size: int
    ) -> None:
        """Reduce a piece of local members' operands onto the earlier ones."""
        assert self.plan is not None
        rows, loaded = stream.taken, self.plan.loaded
        gathered = []
        if rows.is_whole:
            sources = before + [self.operand(p, rows) + offset for p in positions]
        else:
            sources = list(before)
            for p in positions:
                scratch = self.proxy.scratch.take(size)
                source = _piece_at(self.operand(p, rows), rows, offset, size)
                scratch[:size].reshape(source.shape)[:] = source
                sources.append(int(scratch.ctypes.data))
                gathered.append(scratch)
        streamed = stream.streamed if len(targets) > 1 else 0
        self.proxy.reduce(
            targets, sources, size, reduction=loaded.reduction, element=loaded.work.element, streamed=streamed
        )
        for scratch in gathered:
            self.proxy.scratch.give(scratch)

    def receive_partial(
        self, host: int, number: int, run: int, offset: int, size: int, receive: Callable[[memoryview], None]
    ) -> None:
        """Take a piece of a partial result, reduce this run's members onto it, and send it on."""
        stream = self._stream(host, number, offset, size)
        assert self.plan is not None
        runs = self.plan.runs
        if not 0 < run < len(runs) or runs[run][0] != self.proxy.host or runs[run - 1][0] != host:
            raise ClusterError(f"host {host} sent a partial result that no round expects")
        scratch = self.proxy.scratch.take(size)
        receive(scratch[:size].data)
        came, positions = int(scratch.ctypes.data), runs[run][1]
        if run + 1 < len(runs):
            reduced = self.proxy.scratch.take(size)
            self._reduce(stream, [int(reduced.ctypes.data)], [came], positions, offset, size)
            self._owe(1)
            done = self._giving_back(reduced)
            self.proxy.send_partial(self, runs[run + 1][0], number, run + 1, offset, reduced[:size].data, done)
        else:
            self._reduce_last(number, stream, came, positions, offset, size)
        self.proxy.scratch.give(scratch)
        self.settle(size)

    def _reduce_last(
        self, number: int, stream: Stream, came: int, positions: tuple[int, ...], offset: int, size: int
    ) -> None:
        """Reduce the last run: the result goes to local targets and to the next host."""
        places = self.results(stream.targets, stream.given, stream.common)
        if places and stream.given.is_whole:
            targets = [place + offset for place in places]
            self._reduce(stream, targets, [came], positions, offset, size)
            self._send_result(number, stream, 0, offset, view(targets[0], size), None)
            return
        reduced = self.proxy.scratch.take(size)
        self._reduce(stream, [int(reduced.ctypes.data)], [came], positions, offset, size)
        self._scatter(reduced, places, stream.given, offset, size)
        self._send_result(number, stream, 0, offset, reduced[:size].data, reduced)

    def receive_result(
        self, host: int, number: int, offset: int, size: int, receive: Callable[[memoryview], None]
    ) -> None:
        """Take a piece of a result, and send it on to the next host."""
        stream = self._stream(host, number, offset, size)
        if self.proxy.host not in stream.path:
            raise ClusterError(f"host {host} sent a result that no round expects")
        following = stream.path.index(self.proxy.host) + 1
        places = self.results(stream.targets, stream.given, stream.common)
        if stream.given.is_whole:
            direct = places[0] + offset
            receive(view(direct, size))
            if following < len(stream.path):
                self._send_result(number, stream, following, offset, view(direct, size), None)
            if len(places) > 1:
                self.proxy.reduce([p + offset for p in places[1:]], [direct], size, streamed=stream.streamed)
        else:
            scratch = self.proxy.scratch.take(size)
            receive(scratch[:size].data)
            self._scatter(scratch, places, stream.given, offset, size)
            self._send_result(number, stream, following, offset, scratch[:size].data, scratch)
        self.settle(size)

    def _send_result(
        self,
        number: int,
        stream: Stream,
        following: int,
        offset: int,
        piece: memoryview,
        scratch: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None,
    ) -> None:
        """To the host at `following` of the result's path, if there is one."""
        if following == len(stream.path):
            if scratch is not None:
                self.proxy.scratch.give(scratch)
            return
        self._owe(1)
        done = self._giving_back(scratch) if scratch is not None else lambda: self.settle(1)
        self.proxy.send_result(self, stream.path[following], number, offset, piece, done)

    def _stream(self, host: int, number: int, offset: int, size: int) -> Stream:
        plan = self.plan
        if plan is None or plan.algorithm is not Algorithm.CHAIN or number >= len(plan.streams):
            raise ClusterError(f"host {host} sent bytes that no round expects")
        stream = plan.streams[number]
        fits = _is_piece(stream.taken, offset, size) and _is_piece(stream.given, offset, size)
        if not fits or (offset | size) % plan.loaded.work.element:
            raise ClusterError(f"host {host} sent bytes beyond what a round expects")
        return stream

    # --- scratch memory

    def _window_piece(self, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
        """Scratch memory for a piece to send, once few enough wait to be sent; None when the round was given up."""
        self._window.acquire()
        return None if self.is_over else self.proxy.scratch.take(size)

    def _giving_back(
        self, scratch: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], *, window: bool = False
    ) -> Callable[[], None]:
        def done() -> None:
            self.proxy.scratch.give(scratch)
            if window:
                self._window.release()
            self.settle(1)

        return done


def _given(region: PlannedRegion) -> Rows:
    """Where the bytes of a region go: a result, or the copy of an operand that a reduction reads."""
    return region.given if region.targets else region.taken


def _pieces(*sides: Rows) -> list[tuple[int, int]]:
    """(offset, size) of pieces of packed rows: where rows are apart on a side, whole rows or parts of one."""
    rows = sides[0]
    if all(side.is_whole for side in sides):
        return [(at, min(FRAME_PIECE_BYTES, rows.bytes - at)) for at in range(0, rows.bytes, FRAME_PIECE_BYTES)]
    if rows.row <= FRAME_PIECE_BYTES:
        each = FRAME_PIECE_BYTES // rows.row * rows.row
        return [(at, min(each, rows.bytes - at)) for at in range(0, rows.bytes, each)]
    return [
        (row * rows.row + at, min(FRAME_PIECE_BYTES, rows.row - at))
        for row in range(rows.rows)
        for at in range(0, rows.row, FRAME_PIECE_BYTES)
    ]


def _piece_at(place: int, rows: Rows, offset: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A piece of rows that are apart and begin at `place`."""
    first, inside = divmod(offset, rows.row)
    begin = place + first * rows.stride + inside
    if size < rows.row:
        return rows_at(begin, 1, size, size)
    return rows_at(begin, size // rows.row, rows.row, rows.stride)


def _is_piece(rows: Rows, offset: int, size: int) -> bool:
    """Whether rows have such a piece."""
    inside = offset % rows.row
    fits = rows.is_whole or inside + size <= rows.row or (inside == 0 and size % rows.row == 0)
    return fits and size > 0 and offset + size <= rows.bytes
