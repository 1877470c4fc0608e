"""The devices' events in the calls of a cluster: their flight recorders, read after each call, as a timeline.

While a trace is taken every device has a larger ring, which is read after each call. A call that makes more events than
the ring holds loses its first ones; the file says how many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distxla import clock
from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.collectives.recorder import CycleClock, RecordedEvent
from distxla.errors import DistxlaError
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.program.artifact import CommunicatorSpec, CompiledProgram, Site
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.calls.critical_path import Piece, critical_path
from distxla.runtime.calls.site_bytes import site_bytes
from distxla.runtime.calls.timeline import Arrow, Slice, Span, Timeline, Track
from distxla.runtime.hosts.recorder_rings import read_rings
from distxla.runtime.values.handle import Handle

MOST_EVENTS = 1 << 16  # of a call that are kept of each device
RINGS_BYTES = 64 << 20  # of all devices together: 2**20 events, about 250 MB in the file, which Perfetto still opens
KEPT_BYTES = 64 << 20  # of all calls together; the oldest calls are dropped
FAILED_EVENTS = 1 << 14  # of all devices in a call that fails: who has ended a run waits for its file


@dataclass(frozen=True)
class _Call:
    """A call as it was recorded. Times in ns of the driver's clock.

    rows, data: each device's record, and its events as `recorder.decode` takes them.  lost: events by device that were
    overwritten.
    """

    begin: int
    end: int
    error: str
    rows: Mapping[int, bytes]
    data: Mapping[int, bytes]
    lost: Mapping[int, int]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.data.values()))


class Trace(Handle):
    """Records the calls that are made until it is left; `Cluster.trace` makes it.

    Programs show their communication; those that were compiled with `trace=True` also each step that they compute.
    """

    def __init__(
        self,
        hosts: Hosts,
        ring: int,
        programs: Mapping[int, CompiledProgram],
        modules: Mapping[int, Module],
        drain: Callable[[], None],
    ) -> None:
        """ring: offset of rings of `ring_events` for all devices in the control blocks.  drain: waits for calls under
        way. Blocks until all hosts know."""
        self._drain = drain
        self._hosts = hosts
        self._loaded = programs, modules
        # those that were called: the trace outlives them
        self._programs: dict[int, CompiledProgram] = {}
        self._modules: dict[int, Module] = {}
        self.calls: list[_Call] = []
        self._events = ring_events(hosts.device_count)
        self._seen: dict[int, int] = {}  # by device, how many events it has recorded
        self._runs: dict[int, int] = {}
        # by device, how many ns its host's clock is ahead
        self.ahead: dict[int, int] = {}
        for host in hosts.remotes:
            self.ahead.update(dict.fromkeys(host.devices, host.clock_ahead()))
        self._dropped = 0
        self._names = {identity.device: identity for identity in hosts.identities}
        self._active = True
        self._place_rings(ring)
        self._note_seen(self._rows())

    _INTERNAL = frozenset({"call"})

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Record no more calls; recorded ones stay. Blocks until calls under way are over. Twice is fine."""
        if self._active:
            self._drain()
            self._active = False
            with suppress(DistxlaError):  # a cluster that is closed has no rings any more
                self._place_rings(None)

    @property
    def is_active(self) -> bool:
        return self._active

    def _settle(self) -> None:
        """The calls that are under way belong to the trace while it is active."""
        if self._active:
            self._drain()

    def _place_rings(self, ring: int | None) -> None:
        """Let devices record into rings from that offset on, or into their own ones again; no device runs."""
        for host in self._hosts.all:
            for device in host.devices:
                own = control_words.recorder_offset(device)
                place = 0 if ring is None else ring + device * self._events * event_words.EVENT_BYTES - own
                mask = 0 if ring is None else self._events - 1
                host.control_write(
                    control_words.record_offset(device) + control_words.R_RING, place.to_bytes(8, "little")
                )
                host.control_write(
                    control_words.record_offset(device) + control_words.R_RING_MASK, mask.to_bytes(4, "little")
                )

    def __repr__(self) -> str:
        count = self._dropped + len(self.calls)
        return f"Trace({count} call{'' if count == 1 else 's'}, {'recording' if self._active else 'ended'})"

    # --- reading

    @contextmanager
    def call(self) -> Iterator[None]:
        """The body is a call in the trace, unless that was left."""
        begin, error = clock.now_ns(), None
        try:
            yield
        except BaseException as found:
            error = found
            raise
        finally:
            if self._active:
                self._add_call(begin, error)

    def _add_call(self, begin: int, error: BaseException | None) -> None:
        """Note the events since the last call. begin: when this one began, ns of CLOCK_MONOTONIC."""
        end = clock.now_ns()
        rows = self._rows()
        fresh = {device: control_words.R_EVENTS.read(row) - self._seen.get(device, 0) for device, row in rows.items()}
        known = {device: row for device, row in rows.items() if fresh[device] > 0 or self._has_failed(device, row)}
        most = self._events if error is None else min(self._events, max(1, FAILED_EVENTS // self._hosts.device_count))
        fresh_kept = {device: min(count, most) for device, count in fresh.items()}
        data = read_rings(self._hosts.all, known, max(fresh_kept.values(), default=0))
        data = {d: ring[max(0, len(ring) - fresh_kept[d] * event_words.EVENT_BYTES) :] for d, ring in data.items()}
        lost = {d: fresh[d] - len(ring) // event_words.EVENT_BYTES for d, ring in data.items()}
        self._note_seen(rows)
        what = "" if error is None else f"{type(error).__name__}: {error}"
        self.calls.append(_Call(begin, end, what, known, data, lost))
        programs, modules = self._loaded
        for number in {control_words.R_PROGRAM.read(row) for row in known.values()} & programs.keys():
            self._programs[number] = programs[number]
            if number in modules:
                self._modules[number] = modules[number]
        while sum(call.bytes for call in self.calls) > KEPT_BYTES and len(self.calls) > 1:
            self.calls.pop(0)
            self._dropped += 1

    def _has_failed(self, device: int, row: bytes) -> bool:
        """Whether the device has run something since, and not left a site."""
        return control_words.R_RUN.read(row) != self._runs.get(device) and recorder.number_of(
            row
        ) == control_words.R_EVENTS.read(row)

    def _note_seen(self, rows: Mapping[int, bytes]) -> None:
        self._seen.update({device: control_words.R_EVENTS.read(row) for device, row in rows.items()})
        self._runs.update({device: control_words.R_RUN.read(row) for device, row in rows.items()})

    def _rows(self) -> dict[int, bytes]:
        """All devices' records, without those of hosts that can't be reached."""
        rows: dict[int, bytes] = {}
        size = control_words.RECORD_BYTES
        for host in self._hosts.all:
            if not host.devices:
                continue
            first = control_words.record_offset(host.devices.start)
            with suppress(DistxlaError):  # which the call reports
                data = host.control_read(first, len(host.devices) * size)
                rows.update({d: data[k * size : (k + 1) * size] for k, d in enumerate(host.devices)})
        return rows

    # --- the timeline

    def events(self) -> dict[int, list[RecordedEvent]]:
        """By device, in order; times are those of the driver's CLOCK_MONOTONIC."""
        self._settle()
        found: dict[int, list[RecordedEvent]] = {device: [] for device in range(self._hosts.device_count)}
        for call in self.calls:
            for device, events in _events_of(call, self._hosts.devices, self.ahead).items():
                found[device] += events
        return found

    def timeline(self) -> Timeline:
        """All calls."""
        self._settle()
        drawing = _Drawing(self._programs, self._modules)
        for number, call in enumerate(self.calls, 1 + self._dropped):
            drawing.call(number, call, _events_of(call, self._hosts.devices, self.ahead))
        lost: dict[str, int] = defaultdict(int)
        for call in self.calls:
            for device, count in call.lost.items():
                if count > 0:
                    lost[f"device {device}"] += count
        about: dict[str, Any] = {"events that were overwritten": dict(lost)} if lost else {}
        if self._dropped:
            about["calls that were dropped"] = self._dropped
        if drawing.left_out:
            about["arrows left out, since the clocks of their hosts differ by more than they took"] = drawing.left_out
        return Timeline([*self._tracks()], drawing.slices, drawing.arrows, drawing.spans, about, drawing.path)

    @property
    def left_out(self) -> str:
        """The parts that the timeline lacks because there was more than a trace keeps, as a sentence; "" for none."""
        found = []
        if self._dropped:
            found.append(f"the first {self._dropped} of {self._dropped + len(self.calls)} calls")
        lost = sum(max(0, count) for call in self.calls for count in call.lost.values())
        if lost:
            calls = sum(any(count > 0 for count in call.lost.values()) for call in self.calls)
            found.append(f"the first {lost} events of {calls} call{'s' if calls > 1 else ''}")
        if not found:
            return ""
        return (
            f"the trace lacks {' and '.join(found)}: it keeps the last {self._events} events of a device in each call, "
            f"and the last {FAILED_EVENTS} of all devices in one that fails"
        )

    def _tracks(self) -> Iterator[Track]:
        """The driver, then the devices, host by host."""
        yield Track("calls", "driver")
        hosts = [
            next((self._names[d].host for d in devices if d in self._names), "") for devices in self._hosts.devices
        ]
        for number, devices in enumerate(self._hosts.devices):
            host = f"host {hosts[number]}".rstrip()
            host += f" ({number + 1})" if hosts.count(hosts[number]) > 1 else ""
            for device in devices:
                identity = self._names.get(device)
                yield Track(f"device {device}" + (f" (process {identity.pid})" if identity else ""), host)

    # --- how it is shown

    def write(self, path: str | Path) -> None:
        """Write the timeline in the trace-event format. OSError where that is not possible."""
        self.timeline().write(path)

    def page(self, command: str = "") -> str:
        """One self-contained HTML page: devices as lines, computation, communication and waiting to scale.

        command: the one that has traced, to be told there; "" for none.
        """
        from distxla.runtime.calls.timeline_page import page

        return page(self.timeline(), command)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from distxla.runtime.calls.timeline_page import fragment

        return fragment(self.timeline())

    def __str__(self) -> str:
        """How each device's time was spent, in lines."""
        from distxla.runtime.calls.timeline_page import summary

        return summary(self.timeline())


def ring_events(devices: int) -> int:
    """Events in a device's ring while a trace is taken, a power of two."""
    most = RINGS_BYTES // event_words.EVENT_BYTES // devices
    return max(event_words.EVENTS, min(MOST_EVENTS, 1 << (most.bit_length() - 1)))


def rings_bytes(devices: int) -> int:
    """Of the rings of all devices while a trace is taken."""
    return ring_events(devices) * event_words.EVENT_BYTES * devices


def _events_of(call: _Call, hosts: Sequence[Sequence[int]], ahead: Mapping[int, int]) -> dict[int, list[RecordedEvent]]:
    """By device. hosts: the devices of each."""
    found = {}
    for devices in hosts:
        ticks = CycleClock.of(*(call.rows[device] for device in devices if device in call.rows))
        for device in devices:
            if device in call.data:
                events = recorder.decode(call.data[device], call.rows[device], device, ticks)
                found[device] = [event.shifted(-ahead.get(device, 0)) for event in events]
    return found


class _Drawing:
    """Makes slices, arrows and spans of events."""

    def __init__(self, programs: Mapping[int, CompiledProgram], modules: Mapping[int, Module]) -> None:
        self._programs, self._modules = programs, modules
        self.slices: list[Slice] = []
        self.arrows: list[Arrow] = []
        self.spans: list[Span] = []
        self.path: list[Piece] = []
        self._bytes: dict[tuple[int, int], int] = {}
        self.left_out = 0  # arrows

    def call(self, number: int, call: _Call, events: Mapping[int, Sequence[RecordedEvent]]) -> None:
        """Draw a call and the devices' events in it."""
        details = {"error": call.error} if call.error else {}
        self.slices.append(Slice(0, f"call {number}", "call", call.begin, call.end, details))
        ends: dict[tuple[Any, ...], list[tuple[RecordedEvent, Site]]] = defaultdict(list)
        for device, row in events.items():
            for run in _runs(row):
                self._run(device, run, call.end)
            for event, site in self._sites(row):
                for key in _rendezvous_keys(event, site, self._programs[event.program].communicators):
                    ends[key].append((event, site))
        for key, found in ends.items():
            self._join(key, found)
        self.path += critical_path(events, self._shared_keys)

    def _shared_keys(self, event: RecordedEvent) -> Iterator[tuple[Any, ...]]:
        """Keys that are equal for events of several devices that wait for one another."""
        for found, site in self._sites((event,)):
            for kind, *rest in _rendezvous_keys(found, site, self._programs[found.program].communicators):
                yield (kind, *rest[1:]) if kind == "round" else (kind, *rest)

    def _run(self, device: int, run: Sequence[RecordedEvent], last: float) -> None:
        """A run of a program on a device, and everything in it."""
        program = self._programs.get(run[0].program)
        finished = all(event.ended is not None for event in run)
        end = max(event.ended if event.ended is not None else last for event in run)
        name = program.name if program is not None else "program"
        begin = min(event.begun for event in run)
        self.slices.append(Slice(device + 1, name, "run", begin, end, {"run": run[0].run}, not finished))
        for event in run:
            self._event(event, program, end)

    def _event(self, event: RecordedEvent, program: CompiledProgram | None, last: float) -> None:
        track = event.device + 1
        name, category, location, details = self._describe(event, program)
        if location is not None:
            details["location"] = str(location)
            if location.frame is not None:
                details["source"] = str(location.frame)
        if event.iteration:
            details["iterations" if category == "loop" else "iteration"] = event.iteration
        end = event.ended if event.ended is not None else last
        self.slices.append(Slice(track, name, category, event.begun, end, details, event.ended is None))
        if event.waited is not None:
            wait, resumed = f"wait for {_whom(event.waits_for)}", event.resumed
            over = resumed if resumed is not None else end
            self.slices.append(Slice(track, wait, "wait", event.waited, over, {}, resumed is None))

    def _describe(
        self, event: RecordedEvent, program: CompiledProgram | None
    ) -> tuple[str, str, Location | None, dict[str, Any]]:
        """Name, category, place in the text, and details of an event."""
        if event.site is not None:
            if program is None or event.site >= len(program.sites):
                return f"site {event.site}", "collective", None, {}
            site = program.sites[event.site]
            spec = program.communicators[site.communicator]
            details: dict[str, Any] = {"opcode": site.opcode, "round": event.round}
            group = next((g for g in spec.groups if event.device in g), ())
            if len(group) > 1 and not spec.of_channels:
                details["group"] = list(group)
            if size := self._size(event.program, site):
                details["bytes"] = size
            return site.instruction, _category(spec), site.location, details
        if program is None or event.step is None or event.step >= len(program.debug.steps):
            return f"step {event.step}", "kernel", None, {}
        origin = program.debug.steps[event.step]
        module = self._modules.get(event.program)
        location = None
        if module is not None and origin.computation in module.by_name:
            found = module[origin.computation].by_name.get(origin.origin)
            location = module.locate(found) if found is not None else None
        name = f"copy for {origin.instruction}" if origin.kind == "copy" else origin.instruction
        return name, origin.kind, location, {"opcode": origin.opcode}

    def _size(self, program: int, site: Site) -> int:
        """Bytes that a device gives or takes, 0 where that is not known."""
        key = program, site.index
        if key not in self._bytes:
            self._bytes[key] = site_bytes(site, self._modules.get(program))
        return self._bytes[key]

    def _sites(self, events: Sequence[RecordedEvent]) -> Iterator[tuple[RecordedEvent, Site]]:
        for event in events:
            program = self._programs.get(event.program)
            if program is not None and event.site is not None and event.site < len(program.sites) and event.round:
                yield event, program.sites[event.site]

    def _join(self, key: tuple[Any, ...], found: Sequence[tuple[RecordedEvent, Site]]) -> None:
        """Draw connections: between the two ends of a transfer, and from a start to its done."""
        kind, *rest = key
        if kind == "pair":
            source, target = rest[2], rest[3]
            sent = next((e for e, _ in found if e.device == source), None)
            received = next((e for e, _ in reversed(found) if e.device == target), None)
            if sent is not None and received is not None and sent is not received:
                self._arrow("permute", sent, received)
        elif kind == "channel":
            sent = next((e for e, s in found if s.sends and not s.completes), None)
            received = next((e for e, s in found if s.receives and s.completes), None)
            if sent is not None and received is not None:
                self._arrow("send", sent, received)
        elif len(found) > 1:
            (first, site), (last, _) = found[0], found[-1]
            if last.ended is not None:
                details = {"round": first.round}
                self.spans.append(Span(first.device + 1, site.instruction, first.begun, last.ended, details))

    def _arrow(self, name: str, sent: RecordedEvent, received: RecordedEvent) -> None:
        if sent.ended is None or received.ended is None:
            return
        arrival = max(received.begun, received.ended - 1)
        posted = sent.waited if sent.waited is not None else sent.ended  # a sender posts before it waits
        departure = max(sent.begun, min(posted - 1, arrival))
        if departure > arrival:  # clocks of two hosts are compared to half a round trip only
            self.left_out += 1
            return
        self.arrows.append(Arrow(name, sent.device + 1, departure, received.device + 1, arrival))


def _runs(events: Sequence[RecordedEvent]) -> Iterator[list[RecordedEvent]]:
    """Events of one run of a program each."""
    runs: dict[tuple[int, int], list[RecordedEvent]] = {}
    for event in events:
        runs.setdefault((event.program, event.run), []).append(event)
    yield from runs.values()


def _rendezvous_keys(event: RecordedEvent, site: Site, specs: Sequence[CommunicatorSpec]) -> Iterator[tuple[Any, ...]]:
    """Keys that are equal for events that belong together: ("pair", ..) for both ends of a permute's transfer,
    ("channel", ..) for those of a send's, ("round", device, ..) for a start and its done."""
    spec = specs[site.communicator]
    if event.edge:
        yield "channel", event.edge, event.round
        return
    if spec.stream is not None:
        return
    group = next((g for g in spec.groups if event.device in g), ())
    yield "round", event.device, spec.common_key or spec.key, group, event.round
    for source, target in spec.pairs:
        if event.device in (source, target):
            yield "pair", (spec.key, group), event.round, source, target


def _category(spec: CommunicatorSpec) -> str:
    if spec.stream is not None:
        return "feed"
    return "channel" if spec.of_channels else "collective"


def _whom(waits_for: int | None) -> str:
    if waits_for == control_words.WAITS_FOR_HOST:
        return "the host"
    return "the group" if waits_for is None or waits_for < 0 else f"device {waits_for}"
