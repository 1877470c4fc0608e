"""Several writers of one cache folder, and those that end in the middle: killed, interrupted, disk full."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distxla.compiler import cache_folder as module
from distxla.compiler.cache_folder import TAG, TAG_CONTENT, CacheFolder
from tests.compiler.cache_folder_cases import key

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache", 1 << 20)


def test_writers_at_once_never_show_half_an_entry(folder: CacheFolder) -> None:
    seen: list[bytes | None] = []

    def work(letter: bytes) -> None:
        for number in range(30):
            folder.write(key(1), letter * 20000)
            seen.append(folder.read(key(1)))
            folder.write(key(2 + number % 3), letter * 400_000)  # drives others out

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) - {None} <= {letter * 20000 for letter in (b"a", b"b", b"c")}
    assert len(seen) > seen.count(None), "each of them was evicted"
    assert not list(folder.path.glob(".new-*"))
    assert folder.usage().bytes <= folder.max_bytes


PROCESS = """
import sys
from pathlib import Path
from distxla.compiler.cache_folder import CacheFolder
folder = CacheFolder(Path(sys.argv[1]), 1 << 20)
hits = 0
for n in range(100):
    name = f"{n % 7:064x}"
    folder.write(name, name.encode() * 5000)
    found = folder.read(name)
    assert found is None or found == name.encode() * 5000
    hits += found is not None
assert hits
"""


def test_processes_at_once(folder: CacheFolder) -> None:
    """They also make the folder at the same time."""
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(folder.path)], cwd=REPOSITORY, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    assert [(process.communicate()[1], process.returncode) for process in processes] == [(b"", 0)] * 4
    assert not list(folder.path.glob(".new-*"))
    assert 0 < folder.usage().bytes <= folder.max_bytes


def test_a_mark_made_by_another_process_meanwhile(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made after this process has looked for one, and before it looks for files of others."""
    folder.path.mkdir(mode=0o700)

    def listing(descriptor: int) -> list[str]:
        monkeypatch.undo()
        (folder.path / TAG).write_bytes(TAG_CONTENT)
        return os.listdir(descriptor)

    monkeypatch.setattr(module.os, "listdir", listing)
    folder.write(key(1), b"content")
    assert folder.read(key(1)) == b"content"


def test_what_a_killed_writer_leaves_is_removed_and_what_is_being_written_is_not(folder: CacheFolder) -> None:
    folder.write(key(1), b"content")
    abandoned, written = folder.path / ".new-abandoned", folder.path / ".new-written"
    for path in (abandoned, written):
        path.touch()
    os.utime(abandoned, (4102444800, 4102444800))
    os.utime(written, (0, 0))
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        folder.write(key(2), b"content")
        assert not abandoned.exists()
        assert written.exists()
    folder.clear()
    assert not written.exists()


def test_a_writer_that_is_killed_leaves_no_entry(folder: CacheFolder) -> None:
    text = f"""
import os, signal, sys
from pathlib import Path
from distxla.compiler import cache_folder
write = os.write
os.write = lambda descriptor, data: (write(descriptor, data[:7]), os.kill(os.getpid(), signal.SIGKILL))
cache_folder.CacheFolder(Path({str(folder.path)!r}), 1 << 20).write("{key(2)}", bytes(1000))
"""
    folder.write(key(1), b"content")
    ended = subprocess.run([sys.executable, "-c", text], cwd=REPOSITORY, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(folder.path.glob(".new-*"))) == 1
    assert folder.read(key(2)) is None
    folder.write(key(3), b"content")
    assert not list(folder.path.glob(".new-*"))


def test_an_interrupted_writer_leaves_nothing(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder.write(key(1), b"content")
    monkeypatch.setattr(os, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        folder.write(key(2), b"content")
    monkeypatch.undo()
    assert {path.name for path in folder.path.iterdir()} == {TAG, f"{key(1)}.program"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=errno.errorcode.get)
def test_a_write_that_fails_in_the_middle_leaves_nothing(
    number: int, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(module, "told", set())
    monkeypatch.setattr(module.LOGGER, "warning", lambda form, text: told.append(form % text))
    write = os.write
    room = [3000]

    def limited(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(number, os.strerror(number))
        taken = min(room[0], len(data))
        room[0] -= taken
        return write(descriptor, data[:taken])

    folder.write(key(1), b"content")
    monkeypatch.setattr(os, "write", limited)
    for _ in range(2):
        folder.write(key(2), bytes(5000))
    assert {path.name for path in folder.path.iterdir()} == {TAG, f"{key(1)}.program"}
    assert told == [f"distxla: the cache folder {folder.path} takes no more programs: {os.strerror(number)}"]


FULL_DISK = """
mount -t tmpfs -o size=64k tmpfs "$1" || exit 77
exec "$2" -c '
import os, sys
from pathlib import Path
from distxla.compiler.cache_folder import CacheFolder
folder = CacheFolder(Path(sys.argv[1], "cache"), 1 << 20)
folder.write("1" * 64, bytes(30_000))
folder.write("2" * 64, bytes(100_000))
assert folder.read("1" * 64) == bytes(30_000)
assert folder.read("2" * 64) is None
print(*sorted(os.listdir(folder.path)))
' "$1"
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """A real one: a small file system in a mount namespace of its own."""
    command = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c", FULL_DISK, "sh"]
    ended = subprocess.run(
        [*command, str(tmp_path), sys.executable], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if ended.returncode == 77 or "unshare failed" in ended.stderr:
        pytest.skip("this machine allows no mount namespace")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [f"{'1' * 64}.program", TAG]
    assert ended.stderr.splitlines() == [
        f"distxla: the cache folder {tmp_path}/cache takes no more programs: No space left on device"
    ]
