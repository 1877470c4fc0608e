"""A transfer from one device to another on a channel, and the sends and recvs that take part."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass
from distxla.program.channel_end import End


@dataclass(frozen=True)
class Route:
    """An end's share in a transfer. program: its number among the run's.  bounds: None for every execution."""

    program: int
    end: End
    bounds: tuple[int, int] | None


@dataclass(frozen=True)
class Transfer:
    """A transfer from one device to another on one stream of a channel: the sends and the recvs that take part.

    channels: all of their ids; `channel` is one of those that are sent on.
    """

    channel: int
    stream: int
    source: int
    target: int
    sends: tuple[Route, ...]
    recvs: tuple[Route, ...]
    channels: tuple[int, ...]
