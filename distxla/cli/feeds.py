"""Feeds of `distxla run`: infeed items from a file, outfeed items into one, while the programs run.

Leaf k of the n-th item of device d has the key `infeed{n}.{k}@{d}` or `outfeed{n}.{k}@{d}`; `infeed{n}.{k}` gives the
same leaf to all devices. With --repeat the items go on from step to step.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from distxla.cli.array_files import NUMBER, from_file, require_fit, to_file, write_arrays
from distxla.cli.npz import Archive, Member, no_key
from distxla.cli.programs import RunPrograms
from distxla.errors import ArgumentError, DistxlaError, TimeLimitError
from distxla.ir.element_type import element_type_of
from distxla.ir.module import Module
from distxla.ir.nested_values import flat_leaves
from distxla.ir.shape import Shape
from distxla.ir.stream_key import INFEED, OUTFEED, StreamKey, StreamKind
from distxla.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from distxla.oracle.streams import Streams as ReferenceStreams
    from distxla.runtime.cluster import Cluster
    from distxla.runtime.streams.streams import HostChannel, Outfeed

Array = np.ndarray[Any, Any]
Item = tuple[Array, ...]  # its leaves
Keys = dict[int | None, dict[int, dict[int, Member]]]
KEY = re.compile(rf"infeed{NUMBER}\.{NUMBER}(?:@{NUMBER})?")
POLL_S = 0.1


@dataclass(frozen=True)
class Use:
    """The use of one stream by the program of a device.

    shapes: of the items, one for each instruction.  in_order: all of them are in the entry computation itself, so
    that the n-th item of a step is the n-th instruction's.
    """

    shapes: tuple[Shape, ...]
    in_order: bool


def uses_of(module: Module) -> dict[StreamKey, Use]:
    """The streams of a module's entry computation, and of the computations that it calls."""
    found: dict[StreamKey, list[Shape]] = defaultdict(list)
    nested: set[StreamKey] = set()
    pending, seen = [module.entry], {module.entry}
    while pending:
        name = pending.pop(0)
        for instruction in module[name]:
            op = instruction.op
            item = op.stream_item(instruction.shape, tuple(o.shape for o in module[name].operands(instruction)))
            if op.stream is not None and item is not None:
                found[op.stream].append(item)
                if name != module.entry:
                    nested.add(op.stream)
            pending += [called for called in dict.fromkeys(op.called_computations) if called not in seen]
            seen.update(op.called_computations)
    return {key: Use(tuple(shapes), key not in nested) for key, shapes in found.items()}


@dataclass
class Feeds:
    """The items that go in and those that came out.

    uses: by device.  given: infeed items by device.  left: how many of them no program took.  taken: outfeed items by
    device, as their leaves; where `keeps` is not set, of none.  counts: how many outfeed items there were.
    """

    uses: dict[int, dict[StreamKey, Use]]
    given: dict[int, list[Item]] = field(default_factory=dict)
    keeps: bool = False
    left: dict[int, int] = field(default_factory=dict)
    taken: dict[int, list[Item]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    @property
    def exist(self) -> bool:
        """Whether the programs exchange anything with the host."""
        return any(self.uses.values())

    def again(self) -> Feeds:
        """The same items for another backend."""
        return Feeds(self.uses, self.given, self.keeps)

    def collect(self, device: int, item: Any) -> None:
        self.counts[device] = self.counts.get(device, 0) + 1
        if self.keeps:
            self.taken.setdefault(device, []).append(tuple(flat_leaves(item)))


def read_feeds(world: RunPrograms, path: str | None, *, keeps: bool) -> Feeds:
    """The infeed items that the file holds, none without a file. keeps: whether outfeed items are wanted.

    ArgumentError for a file that is no .npz, for keys with gaps, and for items that no infeed of the program takes.
    """
    uses = {device: uses_of(program.module) for device, program in world.program_of.items()}
    feeds = Feeds(uses, keeps=keeps)
    if path is None:
        return feeds
    takers = [device for device, use in uses.items() if INFEED in use]
    if not takers:
        raise ArgumentError(f"{path}: no program has an infeed")
    with Archive(path) as archive:
        keys = _keys(path, archive.members, takers)
        chosen = {device: _items(uses[device][INFEED], device, path, keys) for device in takers}
        archive.require_memory()
        for device, items in chosen.items():  # all of them are checked before the first one is read
            feeds.given[device] = [tuple(from_file(member.array, shape) for member, shape in item) for item in items]
    return feeds


def _keys(path: str, members: Sequence[Member], takers: Sequence[int]) -> Keys:
    """Members by item and leaf, of each device that has a key of its own; of None those for all devices."""
    found: Keys = defaultdict(lambda: defaultdict(dict))
    for member in members:
        match = KEY.fullmatch(member.key)
        if match is None:
            raise no_key(path, member.key, "infeed", "infeed0.0")
        device = None if match[3] is None else int(match[3])
        if device is not None and device not in takers:
            raise ArgumentError(f"{path} holds {member.key}, but no program with an infeed runs on device {device}")
        found[device][int(match[1])][int(match[2])] = member
    return found


def _items(use: Use, device: int, path: str, keys: Keys) -> list[list[tuple[Member, Shape]]]:
    """A device's items in order: which member is which leaf, and in which shape."""
    own, shared = keys[device], keys[None]
    numbers = sorted({*own, *shared})
    leaves = {n: {**shared.get(n, {}), **own.get(n, {})} for n in numbers}
    for position, number in enumerate(numbers):
        missing = f"infeed{position}.0" if number != position else _missing_leaf(number, leaves[number])
        if missing is not None:
            raise ArgumentError(f"{path} holds infeed{number} for device {device}, but no {missing}@{device}")
    return [
        _item(use, n, [item[k] for k in sorted(item)], f"{path}: item {n} of device {device}")
        for n, item in leaves.items()
    ]


def _missing_leaf(number: int, leaves: Mapping[int, Member]) -> str | None:
    return next((f"infeed{number}.{k}" for k in range(len(leaves)) if k not in leaves), None)


def _item(use: Use, number: int, leaves: Sequence[Member], what: str) -> list[tuple[Member, Shape]]:
    """The leaves with the shapes of the infeed that takes them.

    Where infeeds of different shapes are in loops or branches, any of them may be the one: then it is the first that
    takes the leaves in the very types in which the file holds them, or else as bits.
    """
    shapes = [use.shapes[number % len(use.shapes)]] if use.in_order else list(dict.fromkeys(use.shapes))
    fitting, reason = [], None
    for shape in shapes:
        try:
            fitting.append(_as_shape(shape, leaves, what))
        except ArgumentError as error:
            reason = reason or error
    if not fitting:
        if len(shapes) == 1 and reason is not None:
            raise reason
        found = ", ".join(f"{m.stand_in.dtype.name}{list(m.stand_in.shape)}" for m in leaves)
        wanted = " or ".join(str(shape.without_layout()) for shape in shapes)
        raise ArgumentError(f"{what} is ({found}); the program's infeeds take {wanted}")
    return next((item for item in fitting if all(m.stand_in.dtype == s.dtype.dtype for m, s in item)), fitting[0])


def _as_shape(shape: Shape, leaves: Sequence[Member], what: str) -> list[tuple[Member, Shape]]:
    wanted = list(shape.leaves())
    if len(wanted) != len(leaves):
        raise ArgumentError(f"{what} has {len(leaves)} leaves, the program's infeed takes {shape.without_layout()}")
    item = list(zip(leaves, wanted, strict=True))
    for k, (member, leaf) in enumerate(item):
        require_fit(member.stand_in, leaf, f"{what}, leaf {k},")
    return item


def write_outfeeds(path: str, feeds: Feeds) -> None:
    """Write `outfeed{n}.{k}@{d}` for every leaf of every item that was collected."""
    arrays = {
        f"outfeed{n}.{k}@{device}": to_file(array, element_type_of(array.dtype))
        for device, items in sorted(feeds.taken.items())
        for n, item in enumerate(items)
        for k, array in enumerate(item)
    }
    write_arrays(path, arrays)


# --- on a backend


@contextmanager
def fed_reference(feeds: Feeds, logical: Callable[[int], int]) -> Iterator[ReferenceStreams]:
    """Streams of the reference with all items in them; outputs are collected at the end, errors or not.

    logical: the id in the program of a device.
    """
    from distxla.oracle.streams import Streams

    streams = Streams(fed=False)  # whatever is not fed here has ended
    for device, items in feeds.given.items():
        streams.infeed(logical(device)).put_all(items)
        streams.infeed(logical(device)).close()
    try:
        yield streams
    finally:
        for device, uses in feeds.uses.items():
            if INFEED in uses:
                feeds.left[device] = streams.infeed(logical(device)).pending
            if OUTFEED in uses:
                for item in streams.outfeed(logical(device)):
                    feeds.collect(device, item)


@contextmanager
def fed_cluster(cluster: Cluster, feeds: Feeds) -> Iterator[None]:
    """Threads that feed and empty the streams of a cluster's devices while the body calls programs.

    Outputs are collected at the end, errors or not.
    """
    tasks = []
    stop = threading.Event()
    for device, uses in feeds.uses.items():
        for key in uses:
            tasks.append(_Task(cluster, feeds, device, key, stop))
    for task in tasks:
        task.start()
    try:
        yield
    finally:
        stop.set()
        for task in tasks:
            task.join()
    for task in tasks:
        if task.error is not None:
            raise task.error


class _Task(threading.Thread):
    """One stream's other end. error: its own, without those that a failed call reports anyway."""

    def __init__(self, cluster: Cluster, feeds: Feeds, device: int, key: StreamKey, stop: threading.Event) -> None:
        super().__init__(name=f"{key} of device {device}", daemon=True)
        self._cluster, self._feeds, self._device, self._key, self._stop_asked = cluster, feeds, device, key, stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._key.kind.leads_to_device:
                self._feed()
            else:
                self._empty()
        except DistxlaError as error:
            if not self._stop_asked.is_set():
                self.error = error
        except BaseException as error:
            self.error = error

    def _feed(self) -> None:
        """Put all items, then close; channels have none."""
        device = self._device
        if self._key.kind is StreamKind.RECV:
            self._cluster.host_channel(device, self._key.channel).close()
            return
        infeed, items = self._cluster.infeed(device), self._feeds.given.get(device, [])
        put = 0
        try:
            while put < len(items) and not self._stop_asked.is_set():
                try:
                    infeed.put(items[put], POLL_S)
                    put += 1
                except TimeLimitError:
                    continue
        finally:
            infeed.close()  # after an error, too: the program would wait for items that never come
        self._stop_asked.wait()
        self._feeds.left[device] = len(items) - put + infeed.pending

    def _empty(self) -> None:
        """Collect items until the end, then those that are still there; those of channels are dropped."""
        cluster, is_feed = self._cluster, self._key == OUTFEED
        stream: Outfeed | HostChannel = (
            cluster.outfeed(self._device) if is_feed else cluster.host_channel(self._device, self._key.channel)
        )
        while True:
            last = self._stop_asked.is_set()
            try:
                item = stream.get(0 if last else POLL_S)
            except TimeLimitError:
                if last:
                    return
                continue
            if is_feed:
                self._feeds.collect(self._device, item)
