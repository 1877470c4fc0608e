"""Limits of memory: control groups of both versions, nested ones, containers, swap, strict overcommit, RLIMIT_AS."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from distxla.machine.memory_limits import (
    Group,
    Limit,
    address_space,
    free_memory,
    groups_of,
    mapped_bytes,
    most_memory,
)

MiB, GiB = 1 << 20, 1 << 30
UNSET = (1 << 63) - 4096  # of version 1


def tree(folder: Path, files: dict[str, str | int]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder


def proc(
    folder: Path, membership: str, mount: str, meminfo: str = "MemAvailable: 8388608 kB\n", strict: str = "0"
) -> Path:
    """A /proc in which a process is in a group. mount: `cgroup2 / /sys/fs/cgroup`, kind, root and place."""
    kind, root, place = mount.split()
    controllers = "rw,memory" if kind == "cgroup" else "rw"
    return tree(
        folder,
        {
            "self/cgroup": membership,
            "self/mountinfo": "22 1 0:5 / /proc rw - proc proc rw\n"
            f"30 1 0:9 {root} {place} rw shared:4 - {kind} cgroup {controllers}",
            "meminfo": meminfo,
            "sys/vm/overcommit_memory": strict,
        },
    )


def v2(**limits: str | int) -> dict[str, str | int]:
    return {f"memory.{name.replace('_', '.')}": value for name, value in limits.items()}


NESTED_2 = {
    "memory.stat": "file 0",
    "a/memory.max": 3 * GiB,
    "a/memory.current": GiB,
    "a/b/memory.max": "max",
    "a/b/memory.current": 512 * MiB,
    "a/b/c d/memory.max": 4 * GiB,
    "a/b/c d/memory.current": 256 * MiB,
}


def test_the_groups_above_limit_a_process_too(tmp_path: Path) -> None:
    mounted = tree(tmp_path / "cg", NESTED_2)
    groups = groups_of(proc=proc(tmp_path / "proc", "0::/a/b/c d", f"cgroup2 / {mounted}"))
    assert [(group.name, group.version) for group in groups] == [("/a/b/c d", 2), ("/a/b", 2), ("/a", 2), ("/", 2)]
    assert most_memory(groups) == Limit(3 * GiB, "the control group /a (memory.max)")
    assert free_memory(groups, tmp_path / "proc") == Limit(2 * GiB, "the control group /a (memory.max)")


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    mounted = tree(tmp_path / "cg", {"memory.max": GiB, "memory.current": 0})
    # with a namespace of its own; without one; and one whose root is elsewhere
    for number, (path, root) in enumerate([("/", "/"), ("/docker/17", "/docker/17"), ("/../other", "/")]):
        groups = groups_of(proc=proc(tmp_path / f"proc{number}", f"0::{path}", f"cgroup2 {root} {mounted}"))
        assert most_memory(groups).bytes == GiB


def test_version_1_has_other_files(tmp_path: Path) -> None:
    files = {
        "memory.limit_in_bytes": UNSET,
        "job/memory.limit_in_bytes": 2 * GiB,
        "job/memory.usage_in_bytes": GiB,
        "job/memory.stat": f"inactive_file 1\ntotal_inactive_file {256 * MiB}\ntotal_active_file {256 * MiB}",
        "job/memory.memsw.limit_in_bytes": UNSET,
        "job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    }
    mounted = tree(tmp_path / "memory", files)
    membership = "9:name=systemd:/\n4:cpu,memory:/job\n0::/"
    groups = groups_of(proc=proc(tmp_path / "proc", membership, f"cgroup / {mounted}"))
    assert [(group.name, group.version, group.kills()) for group in groups] == [("/job", 1, 3), ("/", 1, None)]
    source = "the control group /job (memory.limit_in_bytes)"
    assert most_memory(groups) == Limit(2 * GiB, source)
    assert free_memory(groups, tmp_path / "proc") == Limit(3 * GiB // 2, source)  # page cache can go


@pytest.mark.parametrize(
    ("files", "meminfo", "left"),
    [
        ({"memory.max": GiB, "memory.current": GiB // 4}, "SwapFree: 0 kB", 3 * GiB // 4),
        ({"memory.max": GiB, "memory.current": 2 * GiB}, "SwapFree: 0 kB", 0),
        ({"memory.max": GiB, "memory.current": GiB, "memory.stat": f"slab_reclaimable {MiB}"}, "", MiB),
        ({"memory.max": GiB, "memory.high": GiB // 2, "memory.current": 0}, "", GiB // 2),
        ({"memory.max": GiB, "memory.current": GiB}, "SwapFree: 1024 kB", MiB),
        (
            {"memory.max": GiB, "memory.current": GiB, "memory.swap.max": 4096, "memory.swap.current": 0},
            "SwapFree: 1024 kB",
            4096,
        ),
        ({"memory.max": "max", "memory.current": GiB}, "", 8 * GiB),
        ({"memory.max": "nonsense"}, "", 8 * GiB),
        ({}, "", 8 * GiB),
    ],
)
def test_what_is_left_of_a_group(tmp_path: Path, files: dict[str, str | int], meminfo: str, left: int) -> None:
    group = Group(tree(tmp_path / "group", {"cgroup.procs": "", **files}), "/group", 2)
    swap = int(meminfo.split()[1]) * 1024 if meminfo else 0
    available = f"MemAvailable: {(8 * GiB - swap) // 1024} kB\n{meminfo}"
    made = proc(tmp_path / "proc", "0::/", f"cgroup2 / {tmp_path}", available)
    assert free_memory([group], made).bytes == left


def test_strict_overcommit_leaves_what_is_not_promised(tmp_path: Path) -> None:
    meminfo = "MemAvailable: 8388608 kB\nCommitLimit: 4194304 kB\nCommitted_AS: 3145728 kB\n"
    lax = proc(tmp_path / "lax", "", f"cgroup2 / {tmp_path}", meminfo)
    assert free_memory([], lax) == Limit(8 * GiB, "this machine")
    strict = proc(tmp_path / "strict", "", f"cgroup2 / {tmp_path}", meminfo, strict="2")
    assert free_memory([], strict) == Limit(GiB, "this machine (vm.overcommit_memory is 2)")


def test_a_process_that_has_ended_is_in_no_group(tmp_path: Path) -> None:
    assert groups_of(1 << 30) == []
    assert groups_of(proc=tmp_path) == []


def test_kills_are_counted_where_the_kernel_says(tmp_path: Path) -> None:
    told = tree(tmp_path / "told", {"memory.events": "low 0\noom 4\noom_kill 2"})
    assert Group(told, "/told", 2).kills() == 2
    assert Group(tmp_path, "/", 2).kills() is None


def test_of_this_machine() -> None:
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < most_memory().bytes <= ram
    assert free_memory().bytes > 0
    assert 0 < mapped_bytes() < 1 << 47
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        assert address_space() is None


def test_without_proc_the_kernel_is_asked(tmp_path: Path) -> None:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_memory([], tmp_path / "none").bytes <= pages * size
    assert mapped_bytes(tmp_path / "none") == 0
