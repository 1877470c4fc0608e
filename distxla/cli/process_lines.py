"""The output of several processes as lines of one: `[0] loss 1.25`. What all of them say about an error is said once.

A traceback, or a notice of distxla's, is held back for half a second: processes that say the same share it as `[0-3]`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

from distxla.wording import ranges

QUIET_S: Final = 0.1  # without further lines, then a traceback has ended
TOGETHER_S: Final = 0.5  # within which processes say the same
PARTIAL_S: Final = 0.1  # then the beginning of a line is a prompt
MOST_LINE: Final = 1 << 20  # bytes
MOST_SAID: Final = 16  # errors that are remembered

_BEGINS: Final = (b"Traceback (most recent call last)", b"distxla: ", b"Fatal Python error")
_ERROR: Final = re.compile(rb"[A-Za-z_][\w.]*(:|$)")
_ADDRESS: Final = re.compile(rb"0x[0-9a-f]+")


class _Block:
    """A traceback of a process, from its first line on; then of all that say the same."""

    def __init__(self, process: int, now: float) -> None:
        self.processes = {process}
        self.lines: list[bytes] = []
        self.since = self.last = now

    def key(self) -> bytes:
        """Equal for blocks that say the same: where an object lies in memory does not matter."""
        return _ADDRESS.sub(b"0x", b"\n".join(self.lines))

    def message(self) -> int:
        """The index of the line that begins the last error, behind its frames; 0 where there are none."""
        framed = [k for k, line in enumerate(self.lines) if line.startswith(b"  File ")]
        if not framed:
            return 0
        after = range(framed[-1] + 1, len(self.lines))
        return next((k for k in after if _ERROR.match(self.lines[k])), 0)


class _Stream:
    """stdout or stderr of a process."""

    def __init__(self) -> None:
        self.pending = b""  # behind the last line
        self.since = 0.0  # when it last came
        self.block: _Block | None = None
        self.held: list[bytes] = []  # lines that wait for a block of the process to be written
        self.is_open = True


class ProcessLines:
    """Takes what processes write, and writes lines.

    write: gets whole lines, most of the time, and whether they are for stderr.  prompts: the process that may ask its
    user something: the beginning of its line is shown, too. Times are seconds of a clock that never goes back.
    """

    def __init__(self, processes: int, write: Callable[[bytes, bool], None], prompts: int | None = None) -> None:
        self._write, self._prompts = write, prompts
        self._streams = {(process, err): _Stream() for process in range(processes) for err in (False, True)}
        self._waiting: list[_Block] = []  # whole ones, which others may say, too
        self._said: deque[bytes] = deque(maxlen=MOST_SAID)
        self._begun: tuple[int, bool] | None = None  # whose line is not at its end

    def take(self, process: int, err: bool, data: bytes, now: float) -> None:
        """A process has written something."""
        stream = self._streams[process, err]
        stream.pending += data
        stream.since = now
        *lines, stream.pending = stream.pending.split(b"\n")
        if len(stream.pending) > MOST_LINE:
            lines, stream.pending = [*lines, stream.pending], b""
        for line in lines:
            self._take_line(process, err, _last_shown(line), now)
        self.settle(now)

    def end(self, process: int, err: bool, now: float) -> None:
        """A stream of a process has ended."""
        stream = self._streams[process, err]
        if stream.pending or self._begun == (process, err):
            pending, stream.pending = stream.pending, b""
            self._take_line(process, err, _last_shown(pending), now)
        stream.is_open = False
        if stream.block is not None:
            self._close(process, stream)
        self.settle(now)

    def settle(self, now: float) -> float | None:
        """Write what is due; how many seconds from now there will be more, None: nothing waits."""
        due: list[float] = []
        for (process, _), stream in self._streams.items():
            block = stream.block
            if block is not None:
                at = min(block.last + QUIET_S, block.since + TOGETHER_S)
                if at <= now:
                    self._close(process, stream)
                else:
                    due.append(at)
        alive = {process for (process, err), stream in self._streams.items() if err and stream.is_open}
        for block in list(self._waiting):
            if block.since + TOGETHER_S <= now or alive <= block.processes:
                self._say(block)
            else:
                due.append(block.since + TOGETHER_S)
        if self._prompts is not None:
            due += [begun for err in (False, True) if (begun := self._prompt(self._prompts, err, now)) is not None]
        return max(0.0, min(due) - now) if due else None

    def finish(self, now: float) -> None:
        """All processes have ended: nothing is held back any more."""
        for process, err in self._streams:
            self.end(process, err, now)
        for block in list(self._waiting):
            self._say(block)

    def _take_line(self, process: int, err: bool, line: bytes, now: float) -> None:
        stream = self._streams[process, err]
        block = stream.block
        if err and line.startswith(_BEGINS if block is None else _BEGINS[1]):
            if block is not None:
                self._close(process, stream)
            block = stream.block = _Block(process, now)
        if block is not None:
            block.lines.append(line)
            block.last = now
        elif err and any(process in waiting.processes for waiting in self._waiting):
            stream.held.append(line)
        else:
            self._put((process,), line, err)

    def _close(self, process: int, stream: _Stream) -> None:
        """A block is whole."""
        block, stream.block = stream.block, None
        assert block is not None
        key = block.key()
        for other in self._waiting:
            if process not in other.processes and other.key() == key:
                other.processes.add(process)
                return
        self._waiting.append(block)

    def _say(self, block: _Block) -> None:
        self._waiting.remove(block)
        who = tuple(sorted(block.processes))
        begin = block.message()
        message = b"\n".join(block.lines[begin:])
        is_known = begin > 0 and len(block.lines) > begin + 1 and message in self._said
        for line in block.lines[: begin + 1] if is_known else block.lines:
            self._put(who, line, True)
        if is_known:
            self._put(who, b"  (the rest as above)", True)
        elif begin:
            self._said.append(message)
        for process in who:
            if not any(process in waiting.processes for waiting in self._waiting):
                stream = self._streams[process, True]
                held, stream.held = stream.held, []
                for line in held:
                    self._put((process,), line, True)

    def _put(self, who: tuple[int, ...], line: bytes, err: bool) -> None:
        if len(who) == 1 and self._begun == (who[0], err):
            self._write(line + b"\n", err)
        else:
            self._end_line()
            self._write(b"[%s] %s\n" % (ranges(who).encode(), line), err)
        self._begun = None

    def _end_line(self) -> None:
        if self._begun is not None:
            self._write(b"\n", self._begun[1])
            self._begun = None

    def _prompt(self, process: int, err: bool, now: float) -> float | None:
        """Show the beginning of a line that has not gone on for a while; when that will be due."""
        stream = self._streams[process, err]
        if not stream.pending or stream.block is not None or stream.held:
            return None
        if now < stream.since + PARTIAL_S:
            return stream.since + PARTIAL_S
        pending, stream.pending = stream.pending, b""
        if self._begun == (process, err):
            self._write(pending, err)
        else:
            self._end_line()
            self._write(b"[%d] %s" % (process, pending), err)
        self._begun = process, err
        return None


def _last_shown(line: bytes) -> bytes:
    """Of a line that was written several times over, as progress bars do, what a terminal shows at the end."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2]


__all__ = ["MOST_LINE", "PARTIAL_S", "QUIET_S", "TOGETHER_S", "ProcessLines"]
