"""Sequentialises parallel copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from distxla.compiler.plan.buffers import Buffer

Move = tuple[Buffer, Buffer]  # source, target


def one_by_one(moves: Iterable[Move], temporary: Callable[[Buffer], Buffer]) -> Iterator[Move]:
    """The moves in an order in which no buffer is overwritten before it was read; the given order as far as possible.

    temporary: returns a temporary buffer. In a cycle, where every target is still to be read, one source moves there
    first. Takes n log n.
    """
    left = dict(enumerate(moves))
    read = Counter(id(source) for source, _ in left.values())
    into: defaultdict[int, list[int]] = defaultdict(list)
    for number, (_, target) in left.items():
        into[id(target)].append(number)
    ready = [number for number, (_, target) in left.items() if not read[id(target)]]  # ascending, so it is a heap
    count = len(left)
    while left:
        if ready:
            source, target = left.pop(heappop(ready))
            yield source, target
        else:
            source, target = left.pop(next(iter(left)))
            place = temporary(source)
            yield source, place
            left[count] = place, target
            into[id(target)].append(count)
            read[id(place)] += 1
            count += 1
        read[id(source)] -= 1
        if not read[id(source)]:
            for number in into[id(source)]:  # their target has no reader any more
                if number in left:
                    heappush(ready, number)
