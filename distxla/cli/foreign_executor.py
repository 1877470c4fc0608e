"""Another implementation as a command that is given programs as files: one process a case, or one for many.

A process gets a session of its own, so that all that it starts ends with it: after its case, at its time limit, and
when `distxla` itself is interrupted.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from distxla import clock
from distxla.errors import ArgumentError, UsageError
from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import descriptor_of, is_readable

FILES = ("module", "args", "out")
COUNTS = ("replicas", "partitions")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
MOST_LETTERS = 400  # of a message
MOST_LOGGED = 1 << 20  # bytes of a case's stderr
_killing = threading.Lock()
ABOUT_ERRORS = re.compile(rb"error|fatal|check failed|^F\d{4} ", re.IGNORECASE)  # the last: as XLA logs fatal errors
END_S = 5.0  # for a process whose input has ended


@dataclass(frozen=True)
class CaseFiles:
    """A folder with what a case's process reads and writes. The counts are in the module's header, too."""

    folder: Path
    replicas: int
    partitions: int

    @property
    def module(self) -> Path:
        return self.folder / "module.hlo"

    @property
    def args(self) -> Path:
        return self.folder / "args.npz"

    @property
    def expected(self) -> Path:
        return self.folder / "expected.npz"

    @property
    def out(self) -> Path:
        return self.folder / "out.npz"

    @property
    def log(self) -> Path:
        """What the process of this case has printed."""
        return self.folder / "log.txt"


@dataclass(frozen=True)
class Failure:
    """Why there are no results. message: the executor's own last words."""

    kind: Literal["refused", "crashed", "time limit"]
    message: str


class Executor(ABC):
    """What runs cases, one after the other."""

    def __init__(self, command: Sequence[str], time_limit: float) -> None:
        self._command, self._limit = command, time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @abstractmethod
    def run(self, files: CaseFiles) -> Failure | None:
        """Write `files.out`, or say why not. Blocks up to the time limit. ArgumentError if the command cannot be
        started."""

    def close(self) -> None:  # noqa: B027
        """Let its process end, between two cases."""

    def stop(self) -> None:
        """End its process at once, called by any thread: `run` then fails soon, and starts no other."""
        self._stopped = True
        if self._process is not None:
            _kill(self._process)


def checked_command(command: Sequence[str], *, batch: bool) -> list[str]:
    """The words, of which {module}, {args}, {out}, {replicas}, {partitions} are filled in for each case; without any,
    the three files are appended. UsageError for others, and for some of the files only."""
    named = {name for word in command for name in PLACEHOLDER.findall(word)} & {*FILES, *COUNTS}
    if batch:
        if named:
            raise UsageError(f"--batch: the paths come on stdin, so {{{min(named)}}} in the command stands for nothing")
        return list(command)
    if not named & set(FILES):
        return [*command, *(f"{{{name}}}" for name in FILES)]
    if missing := [name for name in FILES if name not in named]:
        raise UsageError(f"the command lacks {{{missing[0]}}}: it takes {{module}}, {{args}} and {{out}}, or none")
    return list(command)


class ProcessEach(Executor):
    """Starts the command anew for each case."""

    def run(self, files: CaseFiles) -> Failure | None:
        words = [_filled(word, files) for word in self._command]
        with files.log.open("wb") as log:
            process = self._process = _started(words, log, stdin=subprocess.DEVNULL, stdout=log)
        if self._stopped:  # meanwhile
            _kill(process)
        in_time = _ends_within(process, self._limit)
        status = _kill(process)
        if not in_time:
            return _expired(self._limit, _last_words(files.log))
        return _ended(status, _last_words(files.log))


class ProcessForMany(Executor):
    """Starts the command once. For each case it reads a line `MODULE<tab>ARGS<tab>OUT` and answers with a line `ok` or
    `error: REASON`; other lines are no answers. After its death, or a case beyond its time, it is started again."""

    def __init__(self, command: Sequence[str], time_limit: float) -> None:
        super().__init__(command, time_limit)
        self._stderr: IO[bytes] | None = None
        self._logged = 0  # bytes of stderr that belong to earlier cases
        self._buffer = b""  # of stdout, behind the last line

    def run(self, files: CaseFiles) -> Failure | None:
        deadline = clock.now() + self._limit
        process = self._running()
        line = "\t".join(map(str, (files.module, files.args, files.out))) + "\n"
        try:
            assert process.stdin is not None
            os.write(process.stdin.fileno(), os.fsencode(line))
            answer = self._answer(process, deadline)
        except BrokenPipeError:
            answer = b""
        has_ended = answer == b"" and _ends_within(process, END_S)
        self._write_log(files.log)
        if answer:
            return None if answer == b"ok" else Failure("refused", _shown(answer.removeprefix(b"error:")))
        self._end()
        if answer is None:
            return _expired(self._limit, _last_words(files.log))
        ended = _ended(process.returncode, _last_words(files.log)) if has_ended else None
        return ended or Failure("crashed", "it has closed its stdout without an answer")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._buffer, self._logged = b"", 0
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = _started(self._command, self._stderr, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            if self._stopped:
                _kill(self._process)
        return self._process

    def _write_log(self, path: Path) -> None:
        """What has come on stderr since the last case. Reading leaves the process's own place in the file alone."""
        assert self._stderr is not None
        found = os.pread(self._stderr.fileno(), MOST_LOGGED, self._logged)
        self._logged = os.fstat(self._stderr.fileno()).st_size
        path.write_bytes(found)

    def _answer(self, process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """The next answer; empty: the process has closed its stdout; None: time is over."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._buffer:
                    line, _, self._buffer = self._buffer.partition(b"\n")
                    if (line := line.strip()) == b"ok" or line.startswith(b"error:"):
                        return line
                left = deadline - clock.now()
                if left <= 0 or not ready.select(left):
                    return None
                found = os.read(process.stdout.fileno(), 1 << 16)
                if not found:
                    return b""
                self._buffer += found

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            for stream in (process.stdin, process.stdout, self._stderr):
                assert stream is not None
                stream.close()

    def close(self) -> None:
        """Its input ends; it is killed where it goes on nevertheless."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            _ends_within(process, END_S)
            self._end()


def _filled(word: str, files: CaseFiles) -> str:
    values = {name: str(getattr(files, name)) for name in (*FILES, *COUNTS)}
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)


def _started(words: Sequence[str], log: IO[bytes], *, stdin: int, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=log, start_new_session=True, bufsize=0)
    except OSError as error:
        raise ArgumentError(f"cannot start {words[0]}: {error.strerror}") from error


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends within that time. It keeps its number until `_kill`."""
    try:
        descriptor = descriptor_of(process.pid)
    except ProcessLookupError:  # killed meanwhile, by `stop`
        return True
    try:
        return is_readable(descriptor, seconds)
    finally:
        os.close(descriptor)


def _kill(process: subprocess.Popen[bytes]) -> int:
    """End all in its group, whether or not it has ended itself. Returns its status: once it is asked for the number may
    be another process's, so nobody else does."""
    with _killing:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _expired(limit: float, words: str) -> Failure:
    return Failure("time limit", f"it has not ended after {limit:g} s" + (f": {words}" if words else ""))


def _ended(status: int, words: str) -> Failure | None:
    if status < 0:
        name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
        return Failure("crashed", f"it was ended by {name}" + (f": {words}" if words else ""))
    return Failure("refused", words or f"exit status {status}, without a word") if status else None


def _last_words(log: Path) -> str:
    """The last line about an error, else the last one."""
    lines = [line for line in log.read_bytes()[-(1 << 16) :].splitlines() if line.strip()]
    about = [line for line in lines if ABOUT_ERRORS.search(line)]
    return _shown((about or lines or [b""])[-1])


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} …"


__all__ = ["CaseFiles", "Executor", "Failure", "ProcessEach", "ProcessForMany", "checked_command"]
