"""Streams between the host and the devices of the lock step, in plain queues; semantics: runtime/streams/streams.py."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from distxla import clock
from distxla.collectives.protocols import stream as streams
from distxla.diagnosis.facts.blocked import HOST, DeviceState
from distxla.errors import ArgumentError, StreamEndError, TimeLimitError
from distxla.ir.element_type import element_type_of
from distxla.ir.nested_values import flat_leaves, nested
from distxla.ir.shape import Shape
from distxla.ir.stream_key import INFEED, OUTFEED, StreamKey, StreamKind
from distxla.lazy_dataclass import dataclass, replace
from distxla.oracle.execution import Execution
from distxla.oracle.waits import Wait


class Infeed:
    """The input of a device: items that were put, by number, until it takes them. Threads may share it."""

    def __init__(self, device: int, key: StreamKey, changed: Callable[[], None], *, ended: bool = False) -> None:
        self.device = device
        self.key = key
        self._changed = changed
        self._lock = threading.Lock()
        self._items: dict[int, Any] = {}
        self._posted = 0
        self._asked = 0
        self._is_closed = self._ended = ended

    def __repr__(self) -> str:
        return f"{self.key} of device {self.device}"

    @property
    def pending(self) -> int:
        """Items that no program has taken yet."""
        return len(self._items)

    def put(self, value: Any, timeout: float | None = None) -> None:
        """Put an item: anything np.asarray takes, or a tuple or list of items. There is always room.

        StreamEndError after `close`, until a program has met the end.
        """
        item = _arrays(value)
        with self._lock:
            if self._is_closed and not self._ended:
                raise StreamEndError(f"{self} was closed after {self._posted} items")
            self._is_closed = self._ended = False
            self._items[self._posted] = item
            self._posted += 1
        self._changed()

    def put_all(self, values: Iterable[Any], timeout: float | None = None) -> int:
        """Put all items of an iterable; how many there were."""
        count = 0
        for value in values:
            self.put(value)
            count += 1
        return count

    def close(self) -> None:
        """No more items are to come: a program that wants one more fails with StreamEndError, now or later."""
        self._is_closed = True
        self._changed()

    # --- for the lock step

    def settle(self) -> None:
        """A run begins: items that earlier ones have asked for and not taken can be asked for again."""
        with self._lock:
            self._asked = self._posted - len(self._items)
            self._items = dict(enumerate(self._items.values(), self._asked))

    def ask(self) -> int:
        """The number of the item that the device gets for this."""
        self._asked += 1
        return self._asked - 1

    def has(self, number: int) -> bool:
        """Whether `take` has an answer."""
        return number in self._items or self._is_closed

    def take(self, number: int, run: Execution) -> Any:
        """The item of that number, nested as the instruction states. Raises the error for an item of another type."""
        item = run.instruction.op.stream_item(run.instruction.shape, run.operand_shapes)
        assert item is not None
        where = f"{run.instruction.name} on device {self.device}"
        if number not in self._items:
            self._ended = True
            were = f"the {self.key} was closed after {self._posted} item{'' if self._posted == 1 else 's'}"
            raise StreamEndError(f"{where} wants item {number}: {were}")
        value = self._items.pop(number)
        found = shape_of(value)
        if streams.type_number(found) not in streams.accepted_types(item):
            expected = item.without_layout()
            raise ArgumentError(f"{where}: item {number} of the {self.key}: expected {expected}, found {found}")
        leaves = iter(flat_leaves(value))
        return nested(item, leaves)


class Outfeed:
    """The output of a device: items in the order of their numbers. Threads may share it."""

    def __init__(self, device: int, key: StreamKey, is_running: Callable[[], bool]) -> None:
        self.device = device
        self.key = key
        self._is_running = is_running
        self._items: deque[Any] = deque()
        self._given = 0
        self._news = threading.Condition()

    def __repr__(self) -> str:
        return f"{self.key} of device {self.device}"

    @property
    def pending(self) -> int:
        """Items that were not taken yet."""
        return len(self._items)

    def get(self, timeout: float | None = None) -> Any:
        """The next item; blocks until there is one. timeout: seconds; TimeLimitError when they are over."""
        deadline = None if timeout is None else clock.now() + timeout
        with self._news:
            while not self._items:
                left = None if deadline is None else deadline - clock.now()
                if left is not None and left <= 0:
                    raise TimeLimitError(f"{self} had no item within {timeout:g} s")
                self._news.wait(0.05 if left is None else min(0.05, left))  # in slices: Ctrl-C
            return self._items.popleft()

    def __iter__(self) -> Iterator[Any]:
        """All items that are there; while a run is in flight, also those to come."""
        while True:
            running = self._is_running()
            try:
                yield self.get(0.05 if running else 0)
            except TimeLimitError:
                if not running:
                    return

    def give(self, value: Any) -> int:
        """Called in the lock step; the item's number."""
        with self._news:
            self._items.append(value)
            self._given += 1
            self._news.notify()
        return self._given - 1


class Streams:
    """All streams of the devices of one or several runs, one after the other.

    fed: whether items may be put while a run is in flight, so that an infeed has to wait. Otherwise streams have
    ended from the start, until something is put.
    """

    def __init__(self, *, fed: bool = True) -> None:
        self.fed = fed
        self._infeeds: dict[tuple[int, StreamKey], Infeed] = {}
        self._outfeeds: dict[tuple[int, StreamKey], Outfeed] = {}
        self._lock = threading.Lock()
        self._news: threading.Event | None = None

    def infeed(self, device: int, channel: int | None = None) -> Infeed:
        """The device's infeed, or the end of a channel on which it receives."""
        return self.to_device(device, INFEED if channel is None else StreamKey(StreamKind.RECV, channel))

    def outfeed(self, device: int, channel: int | None = None) -> Outfeed:
        """The device's outfeed, or the end of a channel on which it sends."""
        return self.from_device(device, OUTFEED if channel is None else StreamKey(StreamKind.SEND, channel))

    def to_device(self, device: int, key: StreamKey) -> Infeed:
        with self._lock:
            if (device, key) not in self._infeeds:
                self._infeeds[device, key] = Infeed(device, key, self._changed, ended=not self.fed)
            return self._infeeds[device, key]

    def from_device(self, device: int, key: StreamKey) -> Outfeed:
        with self._lock:
            if (device, key) not in self._outfeeds:
                self._outfeeds[device, key] = Outfeed(device, key, lambda: self._news is not None)
            return self._outfeeds[device, key]

    def begin(self, news: threading.Event) -> None:
        """A run begins; news: to be set when a wait may have become ready."""
        for infeed in self._infeeds.values():
            infeed.settle()
        self._news = news

    def end(self) -> None:
        self._news = None

    def _changed(self) -> None:
        if self._news is not None:
            self._news.set()


@dataclass(frozen=True)
class ItemWait(Wait):
    """A device that wants an item. from_outside is of the class: the host may put one at any time."""

    from_outside = True
    run: Execution
    stream: Infeed
    number: int

    def ready(self) -> bool:
        return self.stream.has(self.number)

    def state(self) -> DeviceState:
        return replace(super().state(), round=self.number + 1, host=HOST)


def shape_of(value: Any) -> Shape:
    """The shape of an item that `_arrays` has made."""
    if isinstance(value, tuple):
        return Shape.tuple(tuple(map(shape_of, value)))
    return Shape(element_type_of(value.dtype), value.shape)


def _arrays(value: Any) -> Any:
    """The item as arrays of its own in tuples."""
    if isinstance(value, tuple | list):
        return tuple(map(_arrays, value))
    array = np.array(value)
    try:
        element_type_of(array.dtype)
    except (KeyError, TypeError):
        raise ArgumentError(f"an item is made of arrays and tuples; no element type holds {array.dtype}") from None
    return array
