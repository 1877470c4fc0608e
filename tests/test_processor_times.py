"""What `pytest --times` prints, and where it has it from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.process_starts import sitecustomize
from tests.process_starts.sitecustomize import FILE, RECORD, completed, is_hidden
from tests.processor_times import COUNTED, TICKS, Processes, Row, Spent, grown, lines, rows

ROOT = Path(__file__).parent.parent
ME, CHILD, GRANDCHILD, ORPHAN = (1, 10), (2, 20), (3, 30), (4, 40)
BUSY = """
import subprocess, sys, time
if sys.argv[1] == "parent":
    subprocess.run([sys.executable, "-c", sys.argv[2], "child", ""])
else:
    while time.process_time() < 0.3:
        pass
    print(flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {ME: Spent(7, 2, None)}, (7, 2)),
        ({ME: Spent(7, 2, None)}, {ME: Spent(9, 2, None), CHILD: Spent(4, 1, ME)}, (2, 5)),
        # the child has ended: of 6 ticks that the parent has got 5 were counted before
        ({ME: Spent(9, 2, None), CHILD: Spent(4, 1, ME)}, {ME: Spent(9, 8, None)}, (0, 1)),
        # nobody has waited for it; what other children have got since counts less, but never less than nothing
        ({ME: Spent(9, 2, None), CHILD: Spent(4, 1, ME)}, {ME: Spent(9, 2, None)}, (0, 0)),
        # both have ended, the grandchild before the child
        (
            {ME: Spent(0, 0, None), CHILD: Spent(4, 0, ME), GRANDCHILD: Spent(5, 0, CHILD)},
            {ME: Spent(0, 12, None)},
            (0, 3),
        ),
        # the end of a process whose parent is not known takes nothing from the others
        ({ME: Spent(0, 0, None), ORPHAN: Spent(50, 0, None)}, {ME: Spent(0, 3, None)}, (0, 3)),
        # another process with the same number
        ({ME: Spent(0, 0, None), CHILD: Spent(4, 0, ME)}, {ME: Spent(0, 4, None), (2, 21): Spent(1, 0, ME)}, (0, 1)),
    ],
)
def test_growth(before: dict, after: dict, found: tuple[int, int]) -> None:
    assert grown(ME, before, after) == found


def test_living_grandchildren_count_once() -> None:
    processes = Processes("no such mark")
    first = processes.look()
    command = [sys.executable, "-c", BUSY, "parent", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        second = processes.look()
    third = processes.look()
    assert grown(processes.root, first, second)[1] >= 0.25 * TICKS
    assert grown(processes.root, second, third)[1] < 0.25 * TICKS


def test_a_process_without_a_parent_is_found() -> None:
    """The shell ends, the other process stays until its input ends."""
    mark = f"MARK_OF_THIS_TEST={os.getpid()}"
    read, write = os.pipe()
    script = f'exec 3<&0; "{sys.executable}" -S -c "import os; os.read(3, 1)" 3<&3 >/dev/null & echo $!'
    environment = {**os.environ, **dict([mark.split("=")])}
    try:
        run = subprocess.run(["sh", "-c", script], stdin=read, stdout=subprocess.PIPE, env=environment, check=True)
        found = {key[0]: spent for key, spent in Processes(mark).look().items()}
        assert found[int(run.stdout)].parent is None
        assert int(run.stdout) not in {key[0] for key in Processes("no such mark").look()}
    finally:
        os.close(read)
        os.close(write)


def test_starts_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below a process that gets an environment of its own, and of one that ignores PYTHONPATH."""
    path = tmp_path / "record"
    path.touch()
    monkeypatch.setenv(RECORD, str(path))
    monkeypatch.setenv(FILE, "tests/a.py")
    hidden = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', 'hidden'])"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hidden!r}], env={{}}, check=True)"
    subprocess.run([sys.executable, "-c", program], env=completed(os.environ), check=True)
    starts = [line.split("\t") for line in path.read_text().splitlines()]
    assert [(kind, file) for kind, file, _ in starts] == [("start", "tests/a.py")] * 3
    assert [command.split()[-1] for *_, command in starts].count("hidden") == 1


def test_starts_of_clusters_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cluster:
        def start(self) -> Cluster:
            if hasattr(self, "started"):
                raise RuntimeError
            self.started = True
            return self

    path = tmp_path / "record"
    path.touch()
    monkeypatch.setenv(RECORD, str(path))
    monkeypatch.setenv(FILE, "tests/a.py")
    sitecustomize._watch_clusters(SimpleNamespace(Cluster=Cluster))
    cluster = Cluster()
    assert cluster.start() is cluster
    with pytest.raises(RuntimeError):
        cluster.start()
    assert path.read_text() == "cluster\ttests/a.py\n"


def test_clusters_are_watched_beside_the_plugin() -> None:
    """Whose finder of distxla's modules comes before all others."""
    program = (
        "from distxla.testing import unrewritten\nunrewritten.install()\n"
        "from distxla.runtime.cluster import Cluster\nprint(Cluster.start.__name__)\n"
    )
    environment = completed({**os.environ, RECORD: os.devnull})
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "counted\n"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/bin/python3.13 -I -S supervisor.py", True),
        ("python -BS -m module", True),
        ("python -P -m distxla.compiler.worker 5", False),
        ("python -c -S", False),
        ("python script.py -S", False),
        ("ls -S", False),
    ],
)
def test_commands_that_hide(command: str, expected: bool) -> None:
    assert is_hidden(command.split()) is expected


def test_tables() -> None:
    record = (
        f"start\t\tpython -c xdist\nspent\tcollection\t0\t{2 * TICKS}\t0\n"
        "start\ttests/a/x.py\t/bin/python -I -S /here/distxla/runtime/ray/supervisor.py\ncluster\ttests/a/x.py\n"
        "start\ttests/a/x.py\tpython -P -m distxla.compiler.worker 7\ncluster\ttests/a/x.py\n"
        "start\ttests/a/y.py\tpython -P -m distxla.jax.partitioner.partition_worker 7\n"
        f"spent\ttests/a/x.py\t3\t{TICKS}\t{4 * TICKS}\nspent\ttests/a/x.py\t1\t0\t{TICKS}\n"
        f"spent\ttests/a/y.py\t2\t{TICKS}\t{TICKS}\n"
    )
    found = rows(record)
    assert found["collection"] == Row(0, 2.0, 0.0, dict(zip(COUNTED, (0, 0, 0, 0, 1))))
    assert found["tests/a/x.py"] == Row(4, 1.0, 5.0, dict(zip(COUNTED, (2, 1, 1, 0, 2))))
    text = [line.split() for line in lines(found)]
    assert ["tests/a", "6", "8.0", "80.0%", "2.0", "6.0", "2", "1", "1", "1", "3"] in text
    assert ["all", "6", "10.0", "100.0%", "4.0", "6.0", "2", "1", "1", "1", "4"] in text
    assert [line[0] for line in text[-2:]] == ["tests/a/x.py", "tests/a/y.py"]


def test_a_run(tmp_path: Path) -> None:
    """Of tests that start nothing; xdist's worker is a start."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "--times"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [*command, "tests/test_slow_marks.py"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines() if line.strip()}
    assert found["tests/test_slow_marks.py"][0] == found["tests"][0] == found["all"][0] == "1"
    assert float(found["collection"][1]) > 0
    assert found["all"][-len(COUNTED) :] == ["0", "0", "0", "0", "1"]
    assert not list(tmp_path.glob("distxla-test-times-*"))
