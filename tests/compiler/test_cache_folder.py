"""The folder of compiled programs: unsafe ones are not used; damage, odd files and clocks do no harm."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distxla import clock
from distxla.compiler import cache_folder as module
from distxla.compiler.cache_folder import TAG, TAG_CONTENT, CacheFolder, UnsafeFolderError, cache_folder, cache_limit
from distxla.errors import ArgumentError
from tests.compiler.cache_folder_cases import key

OVERHEAD = 50  # bytes of an entry beside its content


def state(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Mode, owner, mtime and content of a folder and everything in it."""
    found = {}
    for one in (path, *sorted(path.rglob("*"))):
        status = one.lstat()
        content = one.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(one)] = (status.st_mode, status.st_uid, status.st_mtime_ns, content)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache", 1 << 20)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The notes so far."""
    monkeypatch.setattr(module, "told", set())
    monkeypatch.setattr(module.LOGGER, "propagate", True)
    return lambda: [record.getMessage() for record in caplog.records]


def test_what_was_written_is_read(folder: CacheFolder) -> None:
    assert folder.read(key(1)) is None
    folder.write(key(1), b"content")
    assert folder.read(key(1)) == b"content"
    assert folder.read(key(2)) is None


@pytest.mark.parametrize(
    ("directory", "home", "where"),
    [
        ("/var/tmp", "/h", f"/var/tmp/distxla-cache-{os.geteuid()}"),
        (None, "/h", "/h/.cache/distxla"),
        ("", "/h", "/h/.cache/distxla"),
    ],
)
def test_where_the_folder_is(directory: str | None, home: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("DISTXLA_CACHE_DIR", raising=False)
    if directory is not None:
        monkeypatch.setenv("DISTXLA_CACHE_DIR", directory)
    assert cache_folder() == Path(where)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == (Path(where) if directory else Path("/c/distxla"))


@pytest.mark.parametrize("mode", [0o1777, 0o755, 0o500, 0o2770])
def test_the_folder_around_it_stays_as_it_is(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    around = tmp_path / "around"
    around.mkdir()
    (around / "other").write_text("other's")
    around.chmod(mode)
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(around))
    folder = CacheFolder(cache_folder(), 1 << 20)
    folder.write(key(1), b"content")
    if mode != 0o500 or os.geteuid() == 0:
        assert folder.read(key(1)) == b"content"
        assert stat.S_IMODE(folder.path.stat().st_mode) & 0o777 == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {0o600}
        folder.clear()
    assert stat.S_IMODE(around.stat().st_mode) == mode
    assert (around / "other").read_text() == "other's"
    around.chmod(0o700)


def _others_may_write(path: Path) -> None:
    path.chmod(0o777)


def _group_may_write(path: Path) -> None:
    path.chmod(0o770)


def _mark_is_gone(path: Path) -> None:
    (path / TAG).rename(path / "notes.txt")


def _mark_of_others(path: Path) -> None:
    (path / TAG).write_bytes(TAG_CONTENT.replace(b"distxla", b"another"))


def _mark_that_others_may_write(path: Path) -> None:
    (path / TAG).chmod(0o666)


def _mark_is_a_link(path: Path) -> None:
    (path / TAG).rename(path.parent / TAG)
    (path / TAG).symlink_to(path.parent / TAG)


def _link(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def _file(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.touch()


UNSAFE = {
    _others_may_write: r"others may write to it \(mode 0777\)",
    _group_may_write: r"others may write to it \(mode 0770\)",
    _mark_is_gone: "no CACHEDIR.TAG of distxla",
    _mark_of_others: "no CACHEDIR.TAG of distxla",
    _mark_that_others_may_write: "no CACHEDIR.TAG of distxla",
    _mark_is_a_link: "no CACHEDIR.TAG of distxla",
    _link: "no folder|link",
    _file: "no folder",
}


@pytest.mark.parametrize("change", UNSAFE, ids=lambda change: change.__name__)
def test_unsafe_folders_are_not_used_nor_changed(
    change: Callable[[Path], None], folder: CacheFolder, told: Callable[[], list[str]]
) -> None:
    folder.write(key(1), b"content")
    change(folder.path)
    before = state(folder.path.parent)
    for _ in range(2):
        assert folder.read(key(1)) is None
        folder.write(key(2), b"other")
    with pytest.raises(UnsafeFolderError, match=UNSAFE[change]):
        folder.clear()
    assert state(folder.path.parent) == before
    (text,) = told()
    assert text == f"distxla: the cache folder {folder.path} is not used: {folder.refusal()}; set DISTXLA_CACHE_DIR"


def test_a_folder_of_somebody_else_is_not_used(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    folder.write(key(1), b"content")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert folder.read(key(1)) is None
    assert folder.refusal() == f"it belongs to user {own}, not to you (12345)"
    assert len(told()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [key(1) + ".program", TAG])
def test_a_file_of_somebody_else_is_not_used(folder: CacheFolder, name: str) -> None:
    folder.write(key(1), b"content")
    os.chown(folder.path / name, 12345, -1)
    assert folder.read(key(1)) is None
    assert (folder.path / name).exists()


def test_a_link_of_ones_own_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large disk").mkdir(mode=0o700)
    (tmp_path / "distxla").symlink_to("large disk")
    monkeypatch.delenv("DISTXLA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    CacheFolder(cache_folder(), 1 << 20).write(key(1), b"content")
    assert (tmp_path / "large disk" / f"{key(1)}.program").exists()


def test_a_file_that_cannot_be_a_folder_is_told_of(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    (tmp_path / "file").touch()
    folder = CacheFolder(tmp_path / "file" / "cache", 1 << 20)
    folder.write(key(1), b"content")
    assert folder.read(key(1)) is None
    assert told() == [f"distxla: the cache folder {folder.path} is not used: it is no folder; set DISTXLA_CACHE_DIR"]


def test_a_place_that_takes_no_folder_is_told_of(told: Callable[[], list[str]]) -> None:
    CacheFolder(Path("/proc/distxla-cache"), 1 << 20).write(key(1), b"content")
    (note,) = told()
    assert note == (
        "distxla: the cache folder /proc/distxla-cache is not used: no folder can be made there; set DISTXLA_CACHE_DIR"
    )


def test_a_folder_that_cannot_be_opened_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]
) -> None:
    monkeypatch.delenv("DISTXLA_CACHE_DIR")
    folder = CacheFolder(tmp_path / ("x" * 300), 1 << 20)  # root may open any folder whose name is possible
    for _ in range(2):
        folder.write(key(1), b"content")
        assert folder.read(key(1)) is None
    reason = "File name too long; set DISTXLA_CACHE_DIR"
    assert told() == [f"distxla: the cache folder {folder.path} is not used: {reason}"]


# --- entries


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "a bit": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "the hash": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "empty": lambda data: b"",
    "others'": lambda data: b"x" * 100,
    "the version before": lambda data: data.replace(b"program 2", b"program 1"),
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entries_are_removed(folder: CacheFolder, damage: str) -> None:
    folder.write(key(1), b"content" * 10)
    path = folder.path / f"{key(1)}.program"
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert folder.read(key(1)) is None
    assert not path.exists()


def test_an_entry_under_another_key_is_damaged(folder: CacheFolder) -> None:
    folder.write(key(1), b"content")
    (folder.path / f"{key(1)}.program").rename(folder.path / f"{key(2)}.program")
    assert folder.read(key(2)) is None


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "writable by others"])
def test_odd_files_in_an_entrys_place_are_not_read(folder: CacheFolder, kind: str) -> None:
    folder.write(key(1), b"content")
    path = folder.path / f"{key(1)}.program"
    if kind == "writable by others":
        path.chmod(0o666)
    else:
        path.rename(folder.path.parent / "elsewhere")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(folder.path.parent / "elsewhere")
    assert folder.read(key(1)) is None
    assert os.path.lexists(path)


def test_a_larger_file_than_can_have_been_written_is_not_read_at_all(folder: CacheFolder) -> None:
    folder.write(key(1), b"content")
    path = folder.path / f"{key(1)}.program"
    os.truncate(path, 1 << 36)
    assert folder.read(key(1)) is None
    assert not path.exists()


def test_clear_removes_what_was_written_and_nothing_else(folder: CacheFolder) -> None:
    for number in range(3):
        folder.write(key(number), bytes(100))
    others = ["notes.txt", ".new-", "x.program", key(1).upper() + ".program", f"{key(9)}.programs"]
    for name in others:
        (folder.path / name).write_text("other's")
    (folder.path / f"{key(9)}.program").mkdir()
    assert folder.usage() == folder.clear() == module.Usage(3, 3 * (100 + OVERHEAD))
    assert folder.usage() == module.Usage()
    assert {path.name for path in folder.path.iterdir()} == {TAG, f"{key(9)}.program", *others}


# --- the limit


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 512 << 20),
        ("0", 0),
        ("4096", 4096),
        ("512M", 512 << 20),
        ("1.5g", 3 << 29),
        ("2 GiB", 2 << 30),
        ("3kB", 3072),
    ],
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_SIZE", text)
    assert cache_limit() == size


@pytest.mark.parametrize("text", ["-1", "much", "5X", "1e9", "M"])
def test_wrong_sizes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_SIZE", text)
    with pytest.raises(ArgumentError, match=f"DISTXLA_CACHE_SIZE: expected a number of bytes .* found '{text}'"):
        cache_limit()


def kept(folder: CacheFolder) -> set[int]:
    names = {path.name for path in folder.path.iterdir()}
    return {number for number in range(10) if f"{key(number)}.program" in names}


CLOCKS: dict[str, list[float]] = {  # seconds by which the clock has jumped at each use
    "steady": [0, 0, 0, 0, 0],
    "to the future and back": [0, 3e9, 0, -1e8, 0],
    "to 1970": [0, 0, -1e10, -1e10, -1e10],
    "backwards each time": [0, -1e6, -2e6, -3e6, -4e6],
}


@pytest.mark.parametrize("jumps", CLOCKS)
def test_the_least_recently_used_go_first_whatever_the_clock_says(
    jumps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder(tmp_path / "cache", 3 * (100 + OVERHEAD))
    uses: list[Callable[[], object]] = [
        lambda: folder.write(key(1), bytes(100)),
        lambda: folder.write(key(2), bytes(100)),
        lambda: folder.write(key(3), bytes(100)),
        lambda: folder.read(key(1)),
        lambda: folder.write(key(4), bytes(100)),
    ]
    for jump, use in zip(CLOCKS[jumps], uses, strict=True):
        now = max(0, time.time_ns() + int(jump * 1e9))
        monkeypatch.setattr(clock, "time_of_day_ns", lambda now=now: now)
        use()
        monkeypatch.undo()
    assert kept(folder) == {1, 3, 4}


@pytest.mark.parametrize("when", [0, 2**31 - 1, 4102444800], ids=["1970", "2038", "2100"])
def test_times_that_others_have_set_do_not_last(when: int, tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache", 3 * (100 + OVERHEAD))
    for number in (1, 2, 3):
        folder.write(key(number), bytes(100))
    os.utime(folder.path / f"{key(1)}.program", (when, when))
    for number in (4, 5, 6):
        folder.write(key(number), bytes(100))
    assert kept(folder) == {4, 5, 6} if when < time.time() else {1, 5, 6}
    for number in (7, 8, 9):
        folder.write(key(number), bytes(100))
    assert kept(folder) == {7, 8, 9}


def test_what_is_larger_than_the_limit_is_not_kept_and_drives_nothing_out(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache", 1000)
    folder.write(key(1), bytes(900))
    folder.write(key(2), bytes(1000))
    assert kept(folder) == {1}


def test_nothing_stays_open(folder: CacheFolder) -> None:
    before = set(os.listdir("/proc/self/fd"))
    folder.write(key(1), b"content")
    folder.read(key(1))
    folder.read(key(2))
    folder.path.chmod(0o777)
    folder.read(key(1))
    assert set(os.listdir("/proc/self/fd")) == before
