"""Channels joined by their pairs: one that has only sends and one that has only recvs, with the same pairs.

XLA's runtime for GPUs never compares channel ids: between two devices the k-th send that is executed meets the k-th
recv, and modules written for it give a send and its recv different ids. So where no recv has a send's channel, those
recvs belong to it that have no send on their channel either, name the same source-target pairs, and are of its shape.
Joined channels are one channel: values arrive in the order in which they are sent.

`channels.pair_up` asks here, and everything that pairs sends with recvs asks `pair_up`: `check`, the reference,
compiled programs and the search for an order see the same transfers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from distxla.collectives.transfer import Route, Transfer
from distxla.program.channel_end import End, Pairs

Key = tuple[int, int]  # channel and stream
Ends = list[tuple[int, End]]  # each with the number of its program


def joined(channels: Mapping[Key, Ends], *, apart: bool) -> dict[Key, Ends]:
    """The same ends with channels joined. One that is made of several has the least id among those that are sent on.

    apart: whether ids in pairs mean other devices on channel 0 (replicas) than on others (partitions).
    """
    found = dict(channels)
    for with_shape in (True, False):  # other shapes only as a last resort: an error then names both
        for keys in _components(one_sided(found), apart=apart, with_shape=with_shape):
            ends = [end for key in keys for end in found.pop(key)]
            stream = keys[0][1]
            found[min(end.channel for _, end in ends if end.sends), stream] = ends
    return found


def one_sided(channels: Mapping[Key, Ends]) -> dict[Key, Ends]:
    """The channels that are only sent on, or only received on."""
    return {key: ends for key, ends in channels.items() if len({end.sends for _, end in ends}) == 1}


def _components(channels: Mapping[Key, Ends], *, apart: bool, with_shape: bool) -> Iterator[list[Key]]:
    """Keys of one-sided channels that belong together, both sides among them."""
    sides: dict[Hashable, tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for key, ends in channels.items():
        if any(end.pairs is None for _, end in ends):
            continue
        for label in dict.fromkeys(_label(end, apart=apart, with_shape=with_shape) for _, end in ends):
            sides[label][0 if ends[0][1].sends else 1].append(key)
    linked: dict[Key, set[Key]] = defaultdict(set)
    for sent, received in sides.values():
        for one in sent if received else ():
            linked[one].update(received)
        for other in received if sent else ():
            linked[other].update(sent)
    seen: set[Key] = set()
    for start in sorted(linked):
        if start in seen:
            continue
        component, pending = [], [start]
        while pending:
            key = pending.pop()
            if key not in seen:
                seen.add(key)
                component.append(key)
                pending += linked[key]
        yield sorted(component)


def _label(end: End, *, apart: bool, with_shape: bool) -> Hashable:
    """Equal for ends of channels that belong together."""
    assert end.pairs is not None
    return end.stream, apart and end.channel == 0, frozenset(end.pairs), end.payload if with_shape else None


def near_misses(lonely: End, others: Iterable[End], *, apart: bool) -> Iterator[str]:
    """Why the ends of channels that lack their other side, too, are none for this one: a sentence each."""
    what, side = ("send", "recv") if lonely.sends else ("recv", "send")
    for other in others:
        if other.sends is lonely.sends or other.stream != lonely.stream:
            continue
        reason = None
        if lonely.pairs is None or other.pairs is None:
            which = lonely if lonely.pairs is None else other
            reason = f"{which.instruction} names no pairs, without which ids have to agree"
        elif set(lonely.pairs) != set(other.pairs):
            reason = f"it has the pairs {written(other.pairs)}, {lonely.instruction} has {written(lonely.pairs)}"
        elif apart and (lonely.channel == 0) != (other.channel == 0):
            reason = "its pairs are the same, but on channel 0 ids are replicas, on others partitions"
        if reason is not None:
            yield f"{side} {other} on channel {other.channel} lacks its {what}, too, but {reason}"


def written(pairs: Pairs, most: int = 4) -> str:
    """`{{0,1},{1,2}}`, shortened where there are many."""
    shown = [f"{{{source},{target}}}" for source, target in pairs[:most]]
    return "{" + ",".join([*shown, "…"] if len(pairs) > most else shown) + "}"


def notes(transfers: Sequence[Transfer]) -> Iterator[str]:
    """A sentence for each channel that was joined of several."""
    for number in sorted({(t.channel, t.stream) for t in transfers if len(t.channels) > 1}):
        mine = [t for t in transfers if (t.channel, t.stream) == number]
        sends, recvs = (
            _named(route for t in mine for route in t.sends),
            _named(route for t in mine for route in t.recvs),
        )
        yield (
            f"{sends} and {recvs} are paired by their source-target pairs, in the order in "
            "which they are executed, as by XLA on GPUs: neither channel has another side"
        )


def _named(routes: Iterable[Route], most: int = 2) -> str:
    names = list(dict.fromkeys(f"{route.end} on channel {route.end.channel}" for route in routes))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


__all__ = ["joined", "near_misses", "notes", "one_sided", "written"]
