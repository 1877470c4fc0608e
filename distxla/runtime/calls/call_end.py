"""The end of a call that has failed: an event in, the next step out. Nothing here waits."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Happened(Enum):
    """An event. `whole` beside it: whether all replicas live and all hosts can go on."""

    FAILED = auto()  # the call, by itself: its devices come back, but for those that still compute
    STOPPED = auto()  # the call must end now: an interrupt, a time limit, an error
    DONE = auto()  # the step
    LATE = auto()  # the host that was awaited has not come back
    CALLED = auto()  # the next call wants to begin


class EndAction(Enum):
    """A step. AWAIT and FORCE are of one host, the others of all hosts, before any is awaited."""

    RELEASE = auto()  # every wait, and leave those devices to it that still compute
    END = auto()  # release every wait, and end by force those that do not come
    AWAIT = auto()  # for a while, until the host's devices are back
    FORCE = auto()  # wait until the host's devices are back, or are killed
    CLEAR = auto()  # what the call left in the transports
    ALLOW = auto()  # calls


class EndStep(NamedTuple):
    """What to do, and to which host."""

    do: EndAction
    host: int = 0


class CallEnd:
    """The end of the calls of a cluster with so many ends of hosts, one call after the other.

    An exception may come between any two lines of the thread that takes the steps: an end that has begun and did not
    complete its steps is begun again by force, at the next call at the latest. So `state` is one value, which is
    replaced at once: the step in progress, the hosts to come, the late ones.
    """

    def __init__(self, hosts: int) -> None:
        self._all = tuple(range(hosts))
        self.state: tuple[EndAction | None, tuple[int, ...], tuple[int, ...]] = None, (), ()

    @property
    def is_over(self) -> bool:
        """Whether the next call may begin."""
        return self.state == (None, (), ())

    @property
    def late(self) -> tuple[int, ...]:
        """Hosts that the next call must wait for, once no step is left; those devices still compute."""
        return self.state[2]

    def begin(self) -> None:
        """A call has failed: until its end is over no other may begin."""
        self.state = EndAction.END, self._all, ()

    def handle(self, event: Happened, *, whole: bool) -> EndStep | None:
        """The next step; None: the end is over, or goes on with the next call, which waits for `late`."""
        step, hosts, late = self.state
        if event is Happened.FAILED and whole:
            return self._next(EndAction.RELEASE, self._all)
        if event in (Happened.FAILED, Happened.STOPPED):
            return self._next(EndAction.END, self._all)
        if event is Happened.CALLED:
            if step is None:  # where a replica is lost, no call begins any more
                return self._next(EndAction.AWAIT, late) if late and whole else self._next(None)
            return self._next(EndAction.END, self._all)
        if step is EndAction.RELEASE:
            return self._next(EndAction.AWAIT, hosts)
        if step is EndAction.END:
            return self._next(EndAction.FORCE, hosts)
        if step in (EndAction.AWAIT, EndAction.FORCE):
            if event is Happened.LATE:
                late = (*late, hosts[0])
            if hosts[1:]:
                return self._next(step, hosts[1:], late)
            if late:
                return self._next(None, (), late)
            return self._next(EndAction.CLEAR if whole else None)
        return self._next(EndAction.ALLOW if step is EndAction.CLEAR and whole else None)

    def _next(self, do: EndAction | None, hosts: tuple[int, ...] = (), late: tuple[int, ...] = ()) -> EndStep | None:
        self.state = do, hosts, late
        return None if do is None else EndStep(do, hosts[0] if hosts else 0)


__all__ = ["CallEnd", "EndAction", "EndStep", "Happened"]
