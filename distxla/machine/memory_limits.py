"""Memory limits of this host's processes: of the machine, of control groups, and of the process itself.

    most_memory()      Limit(8 GiB, "the control group /job (memory.max)")
    free_memory()      the bytes left of it now; memory that the kernel can drop (page cache) counts as left
    address_space()    Limit(7.63 GiB, "RLIMIT_AS (ulimit -v)")

A process is in one control group of version 2, or in one memory group of version 1; every group above limits it, too.
In a container the groups above its own may be invisible; those that are mounted are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from distxla.lazy_dataclass import dataclass

_UNLIMITED = 1 << 60  # version 1 reports an unset limit as a number just below 2**63
ARENAS = 2  # of malloc, in a process with RLIMIT_AS
_M_ARENA_MAX = -8


@dataclass(frozen=True)
class Limit:
    """A number of bytes, and its origin, in words that follow "has" or "of"."""

    bytes: int
    source: str


@dataclass(frozen=True)
class Group:
    """A control group that limits memory. version: 1 or 2, of its interface files."""

    folder: Path
    name: str
    version: int

    def most(self) -> Limit | None:
        """The limit of this group; None if there is none."""
        files = ("memory.max", "memory.high") if self.version == 2 else ("memory.limit_in_bytes",)
        found = [(number, file) for file in files if (number := self._number(file)) is not None]
        found = [(number, file) for number, file in found if number < _UNLIMITED]
        if not found:
            return None
        number, file = min(found)
        return Limit(number, f"the control group {self.name} ({file})")

    def free(self, swap: int) -> Limit | None:
        """Bytes left below the limit; None without a limit. swap: free bytes of swap on the machine."""
        most = self.most()
        if most is None:
            return None
        used = self._number("memory.current" if self.version == 2 else "memory.usage_in_bytes")
        if used is None:
            return None
        used = max(0, used - self._droppable())
        left = most.bytes - used + self._swap(swap)
        if self.version == 1 and (both := self._number("memory.memsw.limit_in_bytes")) is not None:
            left = min(left, both - (self._number("memory.memsw.usage_in_bytes") or used))
        return Limit(max(0, left), most.source)

    def kills(self) -> int | None:
        """Number of its processes that the kernel has killed for want of memory; None if unknown."""
        return self._counts("memory.events" if self.version == 2 else "memory.oom_control").get("oom_kill")

    def _droppable(self) -> int:
        counts = self._counts("memory.stat")
        prefix = "" if self.version == 2 else "total_"
        names = ("inactive_file", "active_file", "slab_reclaimable")
        return sum(counts.get(prefix + name, 0) for name in names)

    def _swap(self, free: int) -> int:
        if self.version == 1:
            return free
        most, used = self._number("memory.swap.max"), self._number("memory.swap.current")
        return free if most is None or used is None else max(0, min(free, most - used))

    def _number(self, file: str) -> int | None:
        try:
            text = (self.folder / file).read_text(encoding="ascii").strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() else None

    def _counts(self, file: str) -> dict[str, int]:
        try:
            return _table((self.folder / file).read_text(encoding="ascii"))
        except OSError:
            return {}


def groups_of(process: int | str = "self", proc: Path = Path("/proc")) -> list[Group]:
    """The groups that limit a process's memory, its own first; none if it has ended."""
    try:
        return _groups((proc / str(process) / "cgroup").read_text(), (proc / "self" / "mountinfo").read_text())
    except OSError:
        return []


def own_groups(processes: Iterable[int]) -> set[Group]:
    """The groups of these processes, without the groups above."""
    memberships = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            memberships.add(Path(f"/proc/{process}/cgroup").read_text())
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return set()
    found = set()
    for membership in memberships:
        found |= set({group.version: group for group in reversed(_groups(membership, mounts))}.values())
    return found


def _groups(memberships: str, mounts: str) -> list[Group]:
    """memberships: /proc/PID/cgroup.  mounts: /proc/self/mountinfo."""
    found: list[Group] = []
    for version, point, root in _hierarchies(mounts):
        for line in memberships.splitlines():
            number, controllers, path = line.split(":", 2)
            if (version == 1 and "memory" in controllers.split(",")) or (version == 2 and number == "0"):
                found += _upwards(Path(point), path, root, version)
    return found


def _hierarchies(mounts: str) -> Iterable[tuple[int, str, str]]:
    """(version, mount point, group mounted there) of each hierarchy that can limit memory."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, *rest) = left.split(), right.split() or [""]
        if len(fields) >= 5 and kind == "cgroup2":
            yield 2, _unescaped(fields[4]), _unescaped(fields[3])
        elif len(fields) >= 5 and kind == "cgroup" and "memory" in rest[-1].split(","):
            yield 1, _unescaped(fields[4]), _unescaped(fields[3])


def _upwards(point: Path, path: str, root: str, version: int) -> Iterable[Group]:
    """A group and those above it that are mounted. path, root: the kernel's names."""
    inside = os.path.relpath(path, root)
    parts = () if inside.startswith("..") else Path(inside).parts  # a container sees its own group as the root
    for count in range(len(parts), -1, -1):
        folder = point.joinpath(*parts[:count])
        if folder.is_dir():
            yield Group(folder, "/" + "/".join(parts[:count]), version)


def _unescaped(field: str) -> str:
    """A path of mountinfo, in which spaces and backslashes are octal escapes."""
    return field.encode().decode("unicode_escape") if "\\" in field else field


def _table(text: str) -> dict[str, int]:
    """Parse lines of a name and a number."""
    rows = (line.replace(":", " ").split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdecimal()}


@cache
def _own_groups() -> list[Group]:
    return groups_of()


def most_memory(groups: Iterable[Group] | None = None) -> Limit:
    """The least limit of the machine and of the groups, for all processes together, without swap."""
    machine = Limit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine")
    limits = [group.most() for group in (_own_groups() if groups is None else groups)]
    return min((machine, *(limit for limit in limits if limit is not None)), key=lambda limit: limit.bytes)


def free_memory(groups: Iterable[Group] | None = None, proc: Path = Path("/proc")) -> Limit:
    """Bytes that can still be allocated now; without /proc not those that the page cache would give. Takes 0.1 ms."""
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii")
    except OSError:
        lines = ""
    counts = {name: 1024 * number for name, number in _table(lines).items()}
    swap = counts.get("SwapFree", 0)
    free = counts.get("MemAvailable", counts.get("MemFree"))
    if free is None:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    found = [Limit(free + swap, "this machine")]
    if is_strict(proc):
        left = max(0, counts.get("CommitLimit", 0) - counts.get("Committed_AS", 0))
        found.append(Limit(left, "this machine (vm.overcommit_memory is 2)"))
    limits = [group.free(swap) for group in (_own_groups() if groups is None else groups)]
    return min((*found, *(limit for limit in limits if limit is not None)), key=lambda limit: limit.bytes)


@cache
def is_strict(proc: Path = Path("/proc")) -> bool:
    """Whether the kernel never overcommits memory. Then a shared page that it cannot allocate is a SIGBUS."""
    try:
        return (proc / "sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        return False


def machine_kills() -> int | None:
    """Number of the machine's processes that the kernel has killed for want of memory; None if unknown."""
    try:
        return _table(Path("/proc/vmstat").read_text(encoding="ascii")).get("oom_kill")
    except OSError:
        return None


def own_bytes() -> int:
    """Resident memory of this process without memory that it shares with others. OSError without /proc."""
    fields = _table(Path("/proc/self/status").read_text(encoding="ascii"))
    return 1024 * (fields["RssAnon"] + fields["RssFile"])


def address_space() -> Limit | None:
    """The limit of this process's address space; None if RLIMIT_AS is not set."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else Limit(soft, "RLIMIT_AS (ulimit -v)")


def keep_arenas_few() -> None:
    """If the address space is limited: keep malloc from reserving 64 MiB of it for every thread."""
    if address_space() is not None:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def mapped_bytes(proc: Path = Path("/proc")) -> int:
    """Size of what this process has mapped into its address space; 0 without /proc, which alone tells it."""
    try:
        pages = (proc / "self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
