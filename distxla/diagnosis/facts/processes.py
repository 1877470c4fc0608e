"""JAX processes that disagree, or of which one does not come: their states, and what differs between their programs."""

from __future__ import annotations

from distxla.diagnosis.facts.blocked import Doing
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A JAX process. function, frame: what it calls and from where, `step` and `train.py:47 in main`; "" where it has
    not called anything.  number: of that call among the calls of the same processes, from 1; 0 for none.
    detail: the rest of the sentence, as `was ended by SIGKILL after its call 3`.  calls: its last ones, oldest first.
    stack: where its main thread is, outermost first.  pid, host: 0 and "" where unknown.
    """

    process: int
    doing: Doing
    function: str = ""
    frame: str = ""
    number: int = 0
    detail: str = ""
    calls: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    pid: int = 0
    host: str = ""

    def __str__(self) -> str:
        """`process 0 calls step (train.py:47 in main)`."""
        if self.detail:
            return f"process {self.process} {self.detail}"
        if self.function:
            return f"process {self.process} calls {self.function} ({self.frame})"
        return f"process {self.process} {self.doing}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two processes' programs, or calls. what: function, order, shape, sharding, layout, constant, instruction,
    callback, donation, devices, checks, version or lines.  where: `argument 0 (x)`, `multiply.2`, "" where `what` says
    it all.  one, other: of each process.  process, other_process: which.  frame_one, frame_other: the user's lines.
    sentence: instead of the one that `str` makes of these.
    """

    what: str
    one: str
    other: str
    process: int = 0
    other_process: int = 1
    where: str = ""
    frame_one: str = ""
    frame_other: str = ""
    sentence: str = ""

    def __str__(self) -> str:
        """`constant multiply.2 (w2.py:12): process 0 has 2, process 1 has 3`."""
        if self.sentence:
            return self.sentence
        name = f"{self.what} {self.where}".rstrip()
        frames = self.frame_one, self.frame_other
        is_common = frames[0] == frames[1]
        at = f" ({frames[0]})" if is_common and frames[0] else ""
        one, other = (f" ({frame})" if frame and not is_common else "" for frame in frames)
        return (
            f"{name}{at}: process {self.process} has {self.one or 'none'}{one}, "
            f"process {self.other_process} has {self.other or 'none'}{other}"
        )


__all__ = ["Difference", "ProcessState"]
