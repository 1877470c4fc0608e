"""A program that one device, or all devices of a host together, cannot hold is refused before anything starts, with
the need and the limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import distxla as dx
from distxla.collectives.transports.control_block_view import CONTROL_BYTES
from distxla.machine.memory_limits import Limit
from distxla.machine.segments import HUGE_PAGE
from distxla.runtime.hosts.budget import Budget
from distxla.runtime.values.memory_need import LARGEST_MEMORY, Need, Room, require_host_memory, require_memory
from tests.cli.called import call

MODULE = dx.parse(
    """HloModule wide

ENTRY e {
  x = f32[1024] parameter(0)
  y = f32[1024,1024] broadcast(x), dimensions={0}
  ROOT t = (f32[1024,1024], f32[1024]) tuple(y, x)
}
"""
)
NEED = 4096 + (4 << 20) + 4096
MiB, GiB = 1 << 20, 1 << 30


@pytest.mark.parametrize(("temporaries", "limit"), [(0, NEED), (100, NEED + 100), (0, 1 << 62)])
def test_what_fits_is_taken(temporaries: int, limit: int) -> None:
    require_memory(Need(MODULE, temporaries), Limit(limit, ""))


@pytest.mark.parametrize(
    ("temporaries", "limit", "message"),
    [
        (
            0,
            Limit(NEED - 1, "this machine"),
            "needs 4.01 MiB on each device (4 KiB of arguments, 4 MiB of results); a device has 4.01 MiB",
        ),
        (
            0,
            Limit(1023, "--device-memory"),
            "needs 4.01 MiB on each device (4 KiB of arguments, 4 MiB of results); a device has 1023 B "
            "(--device-memory)",
        ),
        (
            1 << 40,
            Limit(1 << 30, "the control group /a (memory.max)"),
            "needs 1 TiB on each device (4 KiB of arguments, 4 MiB of results, 1 TiB of temporaries); "
            "a device has 1 GiB (the control group /a (memory.max))",
        ),
    ],
)
def test_what_does_not_fit_is_refused(temporaries: int, limit: Limit, message: str) -> None:
    with pytest.raises(dx.OutOfMemoryError) as raised:
        require_memory(Need(MODULE, temporaries), limit)
    assert raised.value.message == f"wide {message}"
    line = None if temporaries else 6  # no one line is to blame for temporaries
    assert (raised.value.location and raised.value.location.line) == line


def test_the_devices_of_a_host_share_what_it_has() -> None:
    need, free = Need(MODULE), Limit(8 * NEED, "this machine")
    require_host_memory([(need, 8)], free)
    require_host_memory([(need, 3), (need, 5)], free)
    with pytest.raises(
        dx.OutOfMemoryError, match=r"its 9 devices on this host need 36.1 MiB; this host has 32.1 MiB left"
    ):
        require_host_memory([(need, 9)], free)
    with pytest.raises(
        dx.OutOfMemoryError, match=r"its 6 devices and the other programs' on host 1 need 36.1 MiB; host 1"
    ):
        require_host_memory([(need, 3), (need, 6)], free, "host 1")
    with pytest.raises(dx.OutOfMemoryError, match=r"its 8 devices on this host need 32.1 MiB"):
        require_host_memory([(Need(MODULE, common=1), 8)], free)


ROOM = Room(Limit(24 * GiB, "this machine"), Limit(1 << 47, "the processor"), CONTROL_BYTES)


def limited(addresses: int, most: int = 24 * GiB) -> Room:
    return Room(Limit(most, "the group"), Limit(CONTROL_BYTES + addresses, "RLIMIT_AS"), CONTROL_BYTES)


@pytest.mark.parametrize(
    ("room", "devices", "wanted", "size"),
    [
        (ROOM, 1, None, 24 * GiB),
        (ROOM, 64, None, 24 * GiB),
        (ROOM, 4096, None, ((1 << 47) - CONTROL_BYTES) // 8193 // HUGE_PAGE * HUGE_PAGE - HUGE_PAGE),
        (ROOM, 1, 2 * GiB, 2 * GiB),
        (ROOM, 8, 100 * GiB, 100 * GiB),  # only what is touched takes memory
        (ROOM, 1, 5, 5),
        (limited(GiB), 1, None, 338 * MiB),
        (limited(GiB), 8, None, 58 * MiB),
        (limited(GiB), 8, 20 * MiB, 20 * MiB),
        (limited(1 << 46, most=GiB), 2, None, GiB),
        (limited(1 << 46, most=1 << 40), 2, None, LARGEST_MEMORY),
    ],
)
def test_a_device_gets_what_all_limits_leave(room: Room, devices: int, wanted: int | None, size: int) -> None:
    found = room.device_memory(devices, wanted).bytes
    assert found == size
    assert (2 * devices + 1) * (found + HUGE_PAGE) + room.others <= room.addresses.bytes


@pytest.mark.parametrize("devices", [1, 8])
def test_memories_of_two_parts_take_twice_the_addresses(devices: int) -> None:
    room = limited(64 * GiB, most=1 << 40)
    one, two = (room.device_memory(devices, parts=parts).bytes for parts in (1, 2))
    assert 2 * two <= one < 2 * (two + 2 * HUGE_PAGE)
    assert 2 * (2 * devices + 1) * (two + HUGE_PAGE) + room.others <= room.addresses.bytes
    assert room.device_memory(devices, GiB, 2).bytes == GiB


def test_where_values_are_apart_a_memory_has_a_part_for_them() -> None:
    for values_apart, parts in ((False, 1), (True, 2)):
        budget = Budget(5 * MiB, values_apart=values_apart)
        budget.settle_here(2, lambda: Limit(GiB, "the group"))
        assert (budget.device_bytes, budget.part_bytes, budget.segment_bytes) == (5 * MiB, 6 * MiB, parts * 6 * MiB)


@pytest.mark.parametrize(
    ("addresses", "devices", "wanted", "message"),
    [
        (
            0,
            8,
            None,
            r"8 devices with memories of 16 MiB need 1.3 GiB of address space in every process; RLIMIT_AS allows 1 GiB",
        ),
        (GiB, 1, GiB, r"1 device with memories of 1 GiB need 4.01 GiB of .*; RLIMIT_AS allows 2 GiB"),
    ],
)
def test_address_space_that_is_not_there_is_refused(
    addresses: int, devices: int, wanted: int | None, message: str
) -> None:
    with pytest.raises(dx.OutOfMemoryError, match=message):
        limited(addresses).device_memory(devices, wanted)


@pytest.mark.parametrize("size", [0, -1, "0", "", "2 apples", "1e3", 1.5, "9" * 400, b"2GiB"])
def test_sizes_that_are_none_are_refused(size: object) -> None:
    with pytest.raises(dx.ArgumentError, match="device_memory: expected a number of bytes"):
        dx.Cluster(1, device_memory=size)  # type: ignore[arg-type]


BIG = "HloModule big\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[%s] broadcast(x), dimensions={}\n}\n"


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_command_line_refuses_before_it_starts_anything(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "big.hlo"
    path.write_text(BIG % "262144,262144")
    status, out, errors = call(capsys, "run", str(path), "--backend", backend)
    assert (status, out) == (2, "")
    assert errors.startswith(
        f"{path}:4:8: error: memory: big needs 256 GiB on each device (4 B of arguments, 256 GiB of "
    )


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_device_memory_that_is_too_small_is_refused(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "big.hlo"
    path.write_text(BIG % "1024,1024")
    status, _, errors = call(capsys, "run", str(path), "--backend", backend, "--device-memory", "2MiB")
    assert status == 2
    assert "4 MiB of results); a device has 2 MiB (--device-memory)" in errors
    status, _, errors = call(capsys, "run", str(path), "--device-memory", "much")
    assert status == 2
    assert (
        "error: usage: invalid value for '--device-memory': expected a number of bytes such as 512M or 2G, found 'much'"
        in errors
    )


def test_devices_that_do_not_fit_together_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "big.hlo"
    path.write_text(BIG % (1 << 26))  # 256 MiB: one fits
    status, _, errors = call(capsys, "run", str(path), "--replicas", "4096")
    assert status == 2
    assert "its 4096 devices on this host need 1 TiB; this host has" in errors


def limited_run(kibibytes: int, *args: str) -> subprocess.CompletedProcess[str]:
    """The command under `ulimit -v`."""
    command = ["bash", "-c", f'ulimit -v {kibibytes}; exec "$@"', "-", sys.executable, "-m", "distxla", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_an_address_space_that_is_too_small_is_refused_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "small.hlo"
    path.write_text(BIG % 4)
    done = limited_run(2_000_000, "run", str(path), "--replicas", "8")
    assert done.returncode == 2, done.stderr
    assert "8 devices with memories of 16 MiB need" in done.stderr
    assert "of address space in every process; RLIMIT_AS (ulimit -v) allows 1.91 GiB" in done.stderr


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_run_keeps_to_a_limited_address_space(tmp_path: Path) -> None:
    path = tmp_path / "small.hlo"
    path.write_text(BIG % 4)
    done = limited_run(8_000_000, "run", str(path), "--replicas", "4")
    assert done.returncode == 0, done.stderr
