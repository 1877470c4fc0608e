"""A folder of checksummed files that only this user can write: its place, its safety checks, its eviction.

    DIR/distxla-cache-1000/CACHEDIR.TAG            the mark of a folder that this module made; backups leave it out
    DIR/distxla-cache-1000/3f…c2.program           an entry: MAGIC, SHA-256 of name and content, content
    DIR/distxla-cache-1000/.new-9d…41              an entry while it is written

Entries are machine code, so a user who can write there can run code as this one. Each operation opens the folder once,
checks the descriptor, and reaches all files through it, so renaming the folders around it has no effect. An unsafe
folder is not used, and neither its mode nor a file of others is changed.

No order depends on the clock. An entry's mtime is the time of its last use, but always later than the mtime of
CACHEDIR.TAG, which is the latest one given; so the order survives jumps of the clock. A temporary file is abandoned
if its lock is free, whatever its age.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import pickle
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from distxla import clock
from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass
from distxla.location import printable
from distxla.machine.byte_counts import bytes_of

LOGGER = logging.getLogger("distxla")
MAGIC = b"distxla program 2\n"
DEFAULT_MAX_BYTES = 512 << 20
TAG = "CACHEDIR.TAG"
TAG_CONTENT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder was made by distxla for compiled programs; `distxla cache --clear` empties it.
# About such tags see https://bford.info/cachedir/
"""
STEP_NS = 1000  # between the mtimes of two uses, if the clock does not advance
OTHERS_WRITE = 0o022

_ENTRY = re.compile(r"[0-9a-f]{64}\.program")
_TEMPORARY = re.compile(r"\.new-[a-z0-9_]+")
_HEADER_BYTES = len(MAGIC) + hashlib.sha256().digest_size
_NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

told: set[str] = set()
_Kept = TypeVar("_Kept")


class UnsafeFolderError(Exception):
    """Why a folder is not used; the text completes `the cache folder X is not used: …`."""


@dataclass(frozen=True)
class Usage:
    """Number and bytes of entries that exist, or were removed."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class _File:
    name: str
    size: int
    used_ns: int  # mtime


def cache_folder() -> Path:
    """`distxla-cache-UID` in DISTXLA_CACHE_DIR, or `distxla` in XDG_CACHE_HOME or ~/.cache.

    Symbolic links in the path are followed; the last component may be a link if the user owns it. Without a home
    directory the path cannot be created, so nothing is cached.
    """
    if given := os.environ.get("DISTXLA_CACHE_DIR"):
        folder = Path(given).resolve() / f"distxla-cache-{os.geteuid()}"
    else:
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "distxla"
        except RuntimeError:
            return Path(os.devnull) / "distxla"
    with contextlib.suppress(OSError):
        found = folder.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
            return folder.resolve()
    return folder


def cache_limit() -> int:
    """Bytes that DISTXLA_CACHE_SIZE allows (`512M`, `2G`; 0: no cache), else 512 MiB. Raises ArgumentError."""
    try:
        return bytes_of(os.environ.get("DISTXLA_CACHE_SIZE") or str(DEFAULT_MAX_BYTES))
    except ValueError as error:
        raise ArgumentError(f"DISTXLA_CACHE_SIZE: {error}") from None


class CacheFolder:
    """Entries by key, in a folder that processes may share. No method fails because of the files on disk.

    path: the folder is created if missing, with mode 0700.  max_bytes: of all entries together; the least recently
    used ones are evicted beyond it. 0: nothing is read or written. For an unsafe or inaccessible folder or a full disk
    the logger `distxla` warns once a process; then nothing is found, or kept.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes

    def refusal(self) -> str | None:
        """Why the folder is not used; None if it is used, or does not exist yet."""
        try:
            with self._opened():
                return None
        except UnsafeFolderError as reason:
            return str(reason)
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error.strerror)

    def read(self, key: str) -> bytes | None:
        """The content that was written under this key (64 hexadecimal digits); None if there is none. A file with
        other content is removed."""
        if not self.max_bytes:
            return None
        with self._telling(), self._opened() as folder:
            name = _entry_name(key)
            descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINKS, dir_fd=folder)
            with open(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode) or not _is_safe(found):
                    return None
                content = _checked(name, file.read()) if found.st_size <= _HEADER_BYTES + self.max_bytes else None
            if content is None:
                os.unlink(name, dir_fd=folder)
                return None
            with contextlib.suppress(OSError):  # on a read-only disk entries are read all the same
                self._use(folder, name)
            return content
        return None

    def read_object(self, key: str, kind: type[_Kept]) -> _Kept | None:
        """What `write_object` kept; None where there is nothing, or something of another class."""
        content = self.read(key)
        if content is None:
            return None
        try:
            found = pickle.loads(content)
        except Exception:  # of a class that has changed, for all that its key says
            found = None
        if not isinstance(found, kind):
            self.remove(key)
            return None
        return found

    def write_object(self, key: str, kept: object) -> None:
        """`write` it as a pickle."""
        self.write(key, pickle.dumps(kept, protocol=pickle.HIGHEST_PROTOCOL))

    def write(self, key: str, content: bytes) -> None:
        """Keep the content under this key; evict the least recently used entries beyond max_bytes."""
        if _HEADER_BYTES + len(content) > self.max_bytes:
            return
        with self._telling(), self._opened(make=True) as folder:
            name = _entry_name(key)
            with _new_file(folder) as (descriptor, temporary):
                _write_all(descriptor, MAGIC, _digest(name, content), content)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._use(folder, name)
            self._evict(folder)

    def remove(self, key: str) -> None:
        """Remove the entry of this key, if any."""
        with self._telling(), self._opened() as folder:
            os.unlink(_entry_name(key), dir_fd=folder)

    def usage(self) -> Usage:
        """Number and bytes of all entries. UnsafeFolderError; OSError if the folder cannot be read."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            files = _entries(folder)
            return Usage(len(files), sum(file.size for file in files))
        return Usage()

    def clear(self) -> Usage:
        """Remove all entries, and temporary files of writers that died, but no other file. Raises as `usage`."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            files = _entries(folder)
            for file in files:
                _unlink(folder, file.name)
            _remove_abandoned(folder)
            return Usage(len(files), sum(file.size for file in files))
        return Usage()

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder, after its checks. make: create and mark it if missing."""
        try:
            if make:
                self._make()
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | _NO_LINKS)
        except (NotADirectoryError, FileExistsError):
            raise UnsafeFolderError("it is no folder") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafeFolderError("it is a link of another user, or to a link") from None
            raise
        try:
            _require_safe(os.fstat(folder))
            _require_mark(folder, make=make)
            yield folder
        finally:
            os.close(folder)

    def _make(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        except FileNotFoundError:  # of /proc, whose parent exists
            raise UnsafeFolderError("no folder can be made there") from None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Suppress errors of the with-body; warn of all but a missing file or folder."""
        try:
            yield
        except UnsafeFolderError as reason:
            _tell(f"the cache folder {self.path} is not used: {reason}; set DISTXLA_CACHE_DIR")
        except OSError as error:
            if error.errno in _DISK_FULL:
                _tell(f"the cache folder {self.path} takes no more programs: {error.strerror}")
            elif error.errno != errno.ENOENT:
                _tell(f"the cache folder {self.path} is not used: {error.strerror}; set DISTXLA_CACHE_DIR")

    def _use(self, folder: int, name: str) -> None:
        """Make the entry the most recently used one."""
        last = os.stat(TAG, dir_fd=folder, follow_symlinks=False).st_mtime_ns
        _set_used(folder, max(clock.time_of_day_ns(), last + STEP_NS), name, TAG)

    def _evict(self, folder: int) -> None:
        _remove_abandoned(folder)
        files = sorted(_entries(folder), key=lambda file: file.used_ns)
        if files:  # an entry with a time in the future ages from now on
            last = os.stat(TAG, dir_fd=folder, follow_symlinks=False).st_mtime_ns
            if files[-1].used_ns > last:
                _set_used(folder, files[-1].used_ns, TAG)
        total = sum(file.size for file in files)
        for file in files:
            if total <= self.max_bytes:
                break
            _unlink(folder, file.name)
            total -= file.size


def _require_safe(folder: os.stat_result) -> None:
    if folder.st_uid != os.geteuid():
        raise UnsafeFolderError(f"it belongs to user {folder.st_uid}, not to you ({os.geteuid()})")
    if folder.st_mode & OTHERS_WRITE:
        raise UnsafeFolderError(f"others may write to it (mode {stat.S_IMODE(folder.st_mode):04o})")


def _require_mark(folder: int, *, make: bool) -> None:
    """UnsafeFolderError unless this module has made the folder, or all its files have names of this module's files."""
    if _is_marked(folder):
        return
    if any(not _ENTRY.fullmatch(name) and not _TEMPORARY.fullmatch(name) for name in os.listdir(folder)):
        if _is_marked(folder):  # the mark itself: another process has just made it
            return
        raise UnsafeFolderError(f"it holds files, but no {TAG} of distxla")
    if make:
        with _new_file(folder) as (descriptor, temporary):
            _write_all(descriptor, TAG_CONTENT)
            os.fsync(descriptor)  # else it might be empty after a power cut
            os.rename(temporary, TAG, src_dir_fd=folder, dst_dir_fd=folder)


def _is_marked(folder: int) -> bool:
    try:
        descriptor = os.open(TAG, os.O_RDONLY | os.O_NONBLOCK | _NO_LINKS, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return False
    with open(descriptor, "rb") as file:
        return _is_safe(os.fstat(descriptor)) and file.read(len(TAG_CONTENT)) == TAG_CONTENT


@contextmanager
def _new_file(folder: int) -> Iterator[tuple[int, str]]:
    """A new file that is locked as long as it is written, and its name; the with-body renames it if all went well."""
    descriptor, name = _locked_file(folder)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _locked_file(folder: int) -> tuple[int, str]:
    while True:
        name = f".new-{secrets.token_hex(8)}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o600, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process took it for abandoned before it was locked
            os.close(descriptor)
            continue
        except OSError:  # a file system without locks: there no file is taken for abandoned either
            return descriptor, name
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)


def _remove_abandoned(folder: int) -> None:
    """Remove temporary files whose writers have died: those release their locks however they end."""
    for name in os.listdir(folder):
        if not _TEMPORARY.fullmatch(name):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(name, os.O_WRONLY | os.O_NONBLOCK | _NO_LINKS, dir_fd=folder)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(descriptor)


def _entries(folder: int) -> list[_File]:
    found = []
    for name in os.listdir(folder):
        if not _ENTRY.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.append(_File(name, status.st_size, status.st_mtime_ns))
    return found


def _is_safe(file: os.stat_result) -> bool:
    return file.st_uid == os.geteuid() and not file.st_mode & OTHERS_WRITE


def _entry_name(key: str) -> str:
    return f"{key}.program"


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(name.encode())
    digest.update(content)
    return digest.digest()


def _checked(name: str, data: bytes) -> bytes | None:
    """The content of an entry; None if the checksum of name and content does not match."""
    content = data[_HEADER_BYTES:]
    return content if data[:_HEADER_BYTES] == MAGIC + _digest(name, content) else None


def _write_all(descriptor: int, *parts: bytes) -> None:
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _set_used(folder: int, used_ns: int, *names: str) -> None:
    for name in names:
        os.utime(name, ns=(used_ns, used_ns), dir_fd=folder, follow_symlinks=False)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _tell(text: str) -> None:
    if text not in told:
        told.add(text)
        LOGGER.warning("%s", printable(f"distxla: {text}"))


__all__ = ["CacheFolder", "UnsafeFolderError", "Usage", "cache_folder", "cache_limit"]
