"""What Ray's servers lack, out of their messages."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distxla.machine.shortages import PROCESSES, of_error
from distxla.runtime.ray.embedded import explained

STACK = """/lib/libc.so.6(__libc_start_main+0x85) [0x7fe919445305] __libc_start_main
[2026-11-29 13:16:49,100 E 20216 20216] (gcs_server) logging.cc:125: Stack trace:
PC: @     0x7fe9194a8eec  (unknown)  (unknown)
    @     0x7fe9194a8eec  (unknown)
"""


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        (
            "E 9 logging.cc:118: Unhandled exception: St12system_error. what(): Resource temporarily unavailable",
            PROCESSES,
        ),
        ("terminate called after throwing 'std::system_error'\n  what():  Resource temporarily unavailable", PROCESSES),
        ("E1129 20891 thd.cc:157]   pthread_create failed: Resource temporarily unavailable", PROCESSES),
        ("agent.sh: 7: Cannot fork", PROCESSES),
        ("RuntimeError: can't start new thread", PROCESSES),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "there is no more memory for its processes",
        ),
        ("OSError: [Errno 12] Cannot allocate memory", "there is no more memory for its processes"),
        ("bind: Too many open files", "a process may open no more files (see `ulimit -n`)"),
        ("write: No space left on device", "no space is left on the disk of its files (see TMPDIR)"),
        ("OSError: [Errno 27] File too large", "a process may have no larger files (see `ulimit -f`)"),
    ],
)
def test_a_shortage_is_one_line(message: str, missing: str, tmp_path: Path) -> None:
    (tmp_path / "raylet.err").write_text("another line\n" + STACK)
    (tmp_path / "zygote.err").write_text(f"{STACK}{message}\n{STACK}")
    assert explained("the raylet has ended", str(tmp_path)) == f"the raylet has ended: {missing}"


def test_other_messages_follow_without_stacks(tmp_path: Path) -> None:
    assert explained("the raylet has ended", str(tmp_path)) == "the raylet has ended"
    (tmp_path / "raylet.err").write_text(f"recv: Resource temporarily unavailable\n{STACK}\x1b[31mno\n")
    assert explained("it ended", str(tmp_path)) == "it ended\nrecv: Resource temporarily unavailable\n[31mno"


def test_errors_of_the_system() -> None:
    assert of_error(errno.EAGAIN) == PROCESSES
    assert of_error(errno.EPERM) is None
