"""distxla/jax/processes/endings.py."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes.endings import Endings, ending_of
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.ledger_facts import Ending
from distxla.jax.processes.messages import pack_json
from tests.jax.pjrt.scripts import ROOT


class Watched:
    def __init__(self) -> None:
        self.told: queue.Queue[tuple[int, Ending]] = queue.Queue()
        self.died: queue.Queue[int] = queue.Queue()
        self.endings = Endings(lambda process, how: self.told.put((process, how)), self.died.put)
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, code: str) -> subprocess.Popen[bytes]:
        """A child that runs the code once a line comes on its stdin."""
        code = f"import sys, os; sys.stdin.readline(); {code}"
        self.children.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE))
        return self.children[-1]

    def close(self) -> None:
        self.endings.close()
        self.endings.close()
        for child in self.children:
            child.kill()
            child.communicate()


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("os.kill(os.getpid(), 6)", "was ended by SIGABRT"),
        ("os._exit(0)", "has left with status 0 and no word"),
        ("sys.exit(7)", "has left with status 7 and no word"),
    ],
)
def test_an_end_without_a_word_is_told_by_its_status(watched: Watched, code: str, said: str) -> None:
    child = watched.start(code)
    watched.endings.watch(3, child.pid)
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.close()
    process, how = watched.told.get(timeout=30)
    assert (process, str(how)) == (3, said)
    assert watched.died.get(timeout=30) == 3


def test_an_end_that_is_said_is_told_once(watched: Watched) -> None:
    child = watched.start("pass")
    watched.endings.watch(0, child.pid)
    watched.endings.said(0, Ending("raised", "ValueError: x"))
    watched.endings.lost(0)
    child.kill()
    assert watched.died.get(timeout=30) == 0
    assert watched.told.get_nowait() == (0, Ending("raised", "ValueError: x"))
    assert watched.told.empty()


def test_a_connection_that_ends_before_its_process_is_killed_is_told_by_the_signal(watched: Watched) -> None:
    child = watched.start("pass")
    watched.endings.watch(1, child.pid)
    watched.endings.lost(1)
    child.send_signal(signal.SIGKILL)
    assert watched.told.get(timeout=30) == (1, Ending("signal", signal="SIGKILL"))


def test_a_connection_that_ends_alone_is_told_as_lost(watched: Watched) -> None:
    watched.endings.watch(1, os.getpid())
    watched.endings.lost(1)
    assert watched.told.get(timeout=30) == (1, Ending("lost"))


def test_an_error_in_what_an_end_calls_does_not_keep_the_next_one_from_being_told(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told: queue.Queue[int] = queue.Queue()

    def ended(process: int, how: Ending) -> None:
        told.put(process)
        if process == 0:
            raise ValueError("broken")

    endings = Endings(ended)
    try:
        for process in (0, 1):
            endings.lost(process)
        assert {told.get(timeout=30), told.get(timeout=30)} == {0, 1}
    finally:
        endings.close()
    assert capfd.readouterr().err == "distxla: ValueError: broken\n"


def said_at_exit(code: str) -> Ending:
    """What a script says of its end when it comes to it."""
    first = "import atexit, json\nfrom distxla.jax.processes.endings import own_ending\n"
    first += "atexit.register(lambda: print(json.dumps(own_ending())))\n"
    found = subprocess.run(
        [sys.executable, "-c", first + code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    return ending_of(pack_json(json.loads(found.stdout)))


def test_a_script_says_how_it_ends() -> None:
    assert said_at_exit("pass") == Ending("end")
    assert said_at_exit("raise SystemExit(3)") == Ending("end")
    raised = said_at_exit("def load():\n    raise ValueError('data loader\\nof two lines')\nload()")
    assert raised == Ending("raised", "ValueError: data loader", LaunchSite("<string>", 5, "load"))
    assert str(raised) == "ends with ValueError: data loader (<string>:5),"
    assert said_at_exit("try:\n    1 / 0\nexcept Exception:\n    pass") == Ending("end")


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"how": "stop"},
        {"how": "raised", "error": 3},
        {"how": "raised", "error": "", "site": {"file": "x", "line": "1", "function": ""}},
        {"how": "raised", "error": "", "site": []},
    ],
)
def test_another_payload_of_bye_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ClusterError, match="a BYE frame"):
        ending_of(pack_json(payload))
