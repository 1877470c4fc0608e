"""distxla/cli/process_lines.py."""

from __future__ import annotations

from distxla.cli.process_lines import MOST_LINE, PARTIAL_S, QUIET_S, TOGETHER_S, ProcessLines

ERROR = b"""Traceback (most recent call last):
  File "train.py", line 7, in <module>
    f(x)
jax.errors.JaxRuntimeError: mismatch: processes disagree in call 4
  constant multiply.2: process 0 has 2
"""


class Written:
    """What two processes have made of it."""

    def __init__(self, processes: int = 2, prompts: int | None = None) -> None:
        self.out, self.err = b"", b""
        self.lines = ProcessLines(processes, self._write, prompts)

    def _write(self, data: bytes, err: bool) -> None:
        if err:
            self.err += data
        else:
            self.out += data


def prefixed(who: str, text: bytes) -> bytes:
    return b"".join(f"[{who}] ".encode() + line + b"\n" for line in text.splitlines())


def test_lines_are_written_whole() -> None:
    found = Written()
    found.lines.take(0, False, b"loss ", 0)
    found.lines.take(1, False, b"step 1\nstep", 0)
    found.lines.take(0, False, b"1.25\n", 0)
    assert found.out == b"[1] step 1\n[0] loss 1.25\n"
    found.lines.finish(0)
    assert found.out.endswith(b"[1] step\n")
    assert found.err == b""


def test_a_progress_bar_is_written_as_it_ends() -> None:
    found = Written()
    found.lines.take(0, True, b" 10%\r 50%\r100%\nwindows\r\n", 0)
    assert found.err == b"[0] 100%\n[0] windows\n"


def test_a_line_without_an_end_is_cut() -> None:
    found = Written()
    found.lines.take(0, False, b"x" * (MOST_LINE + 1), 0)
    assert len(found.out) == MOST_LINE + 1 + len(b"[0] \n")


def test_an_error_of_all_is_said_once_and_at_once() -> None:
    found = Written()
    found.lines.take(0, True, ERROR, 0)
    assert found.err == b""
    found.lines.take(1, True, ERROR, 0.01)
    found.lines.end(0, True, 0.02)
    found.lines.end(1, True, 0.03)
    assert found.err == prefixed("0-1", ERROR)


def test_objects_at_other_addresses_are_the_same_error() -> None:
    found = Written()
    for process in (0, 1):
        found.lines.take(process, True, ERROR + b"  <f at 0x7f%d0>\n" % process, 0)
    found.lines.settle(QUIET_S)
    assert found.err == prefixed("0-1", ERROR + b"  <f at 0x7f00>\n")


def test_an_error_of_one_is_said_when_the_others_may_be_late_no_more() -> None:
    found = Written(3)
    found.lines.take(1, True, ERROR, 0)
    left = found.lines.settle(QUIET_S)
    assert left == TOGETHER_S - QUIET_S
    assert found.err == b""
    assert found.lines.settle(TOGETHER_S) is None
    assert found.err == prefixed("1", ERROR)


def test_the_same_error_behind_other_frames_is_not_said_twice() -> None:
    found = Written()
    found.lines.take(0, True, ERROR, 0)
    found.lines.take(1, True, ERROR.replace(b"line 7", b"line 9"), 0)
    found.lines.settle(1)
    first = prefixed("0", ERROR)
    assert found.err.startswith(first)
    assert found.err[len(first) :] == (
        b'[1] Traceback (most recent call last):\n[1]   File "train.py", line 9, in <module>\n[1]     f(x)\n'
        b"[1] jax.errors.JaxRuntimeError: mismatch: processes disagree in call 4\n[1]   (the rest as above)\n"
    )


def test_lines_behind_an_error_stay_behind_it() -> None:
    found = Written()
    found.lines.take(0, True, ERROR, 0)
    found.lines.settle(QUIET_S)
    found.lines.take(0, True, b"goes on\n", QUIET_S)
    found.lines.take(1, True, b"meanwhile\n", QUIET_S)
    assert found.err == b"[1] meanwhile\n"
    found.lines.settle(1)
    assert found.err == b"[1] meanwhile\n" + prefixed("0", ERROR) + b"[0] goes on\n"


def test_a_notice_of_all_that_wait_is_said_once() -> None:
    found = Written(3)
    notice = b"distxla: processes 0 and 2 wait for process 1: it is at train.py:49\n"
    found.lines.take(0, True, notice, 0)
    found.lines.take(2, True, notice, 0)
    found.lines.settle(TOGETHER_S)
    assert found.err == prefixed("0,2", notice)


def test_a_prompt_is_shown_and_goes_on() -> None:
    found = Written(prompts=0)
    found.lines.take(0, False, b"(Pdb) ", 0)
    assert found.out == b""
    assert found.lines.settle(PARTIAL_S) is None
    assert found.out == b"[0] (Pdb) "
    found.lines.take(1, False, b"other\n", 1)
    assert found.out == b"[0] (Pdb) \n[1] other\n"
    found.lines.take(0, False, b"3\n(Pdb) ", 2)
    found.lines.settle(3)
    found.lines.take(0, False, b"4\n", 4)
    assert found.out == b"[0] (Pdb) \n[1] other\n[0] 3\n[0] (Pdb) 4\n"


def test_a_prompt_of_another_process_waits_for_its_line() -> None:
    found = Written(prompts=0)
    found.lines.take(1, False, b"half", 0)
    assert found.lines.settle(9) is None
    assert found.out == b""
