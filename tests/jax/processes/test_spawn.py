"""The owner as a process: it starts, serves, and leaves nothing behind, however it or its processes end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from distxla.errors import ClusterError, DistxlaError
from distxla.jax.processes.owner_file import read_owner
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.spawn import spawn_owner
from distxla.machine.processes import command_line, descriptor_of, is_readable, process_ids, status_fields
from tests.jax.processes.fake_process_cases import LOCAL, FakeProcess, summing

END_S = 60.0
SETTINGS = OwnerSettings(LOCAL, device_memory="64MiB")


def ended(pid: int) -> bool:
    """Whether a child of this process ends; waits for that."""
    descriptor = descriptor_of(pid)
    try:
        return is_readable(descriptor, END_S)
    finally:
        os.close(descriptor)


def owners() -> list[int]:
    """The owners that this process has started. A child of an owner has its command line, too, until it executes
    another program."""
    found = []
    for process in process_ids():
        try:
            if b"owner_process" in command_line(process) and int(status_fields(process)[1]) == os.getpid():
                found.append(process)
        except OSError:
            continue
    return found


def test_it_serves_until_its_last_process_is_gone() -> None:
    read, write = os.pipe()
    owner = spawn_owner(2, SETTINGS, guarded=False, news=write)
    os.close(write)
    assert owners() == [owner.pid]
    both = [FakeProcess(owner.path, process, device_memory=SETTINGS.device_memory) for process in range(2)]
    for process in both:
        process.attached()
    with pytest.raises(ClusterError):  # what has its number now is something else
        read_owner(owner.path)
    assert both[0].compile(summing()).program == both[1].compile(summing()).program == 1
    both[0].close()
    assert not is_readable(descriptor_of(owner.pid), 0.2)
    both[1].close()
    assert ended(owner.pid)
    assert owner.process.wait(END_S) == 0
    with open(read) as news:
        told = [json.loads(line) for line in news]
    assert sorted(one["came"] for one in told[:2]) == [0, 1]
    assert told[2] == {"attached": 2}
    assert sorted(one["ended"]["process"] for one in told[3:]) == [0, 1]


def test_it_takes_all_along_where_it_is_told_to_end() -> None:
    owner = spawn_owner(2, SETTINGS, guarded=False)
    both = [FakeProcess(owner.path, process, device_memory=SETTINGS.device_memory) for process in range(2)]
    for process in both:
        process.attached()
    owner.process.send_signal(signal.SIGTERM)
    assert ended(owner.pid)
    assert [process.next_told() for process in both] == [None, None]
    assert owner.process.wait(END_S) == 0


def test_one_that_cannot_start_says_why() -> None:
    with pytest.raises(DistxlaError, match="backend"):
        spawn_owner(2, OwnerSettings(LOCAL, backend="abacus"), guarded=False)
    assert owners() == []


def test_where_its_devices_cannot_start_the_processes_are_told() -> None:
    owner = spawn_owner(1, OwnerSettings(LOCAL, device_memory="100000GiB"), guarded=False)
    process = FakeProcess(owner.path, 0)
    with pytest.raises(DistxlaError, match="address space"):
        process.attached()
    process.close()
    assert ended(owner.pid)


@pytest.mark.parametrize("guarded", [True, False])
def test_one_whose_parent_is_gone_before_it_came_ends(guarded) -> None:
    code = f"""
import os
from distxla.jax.processes.owner_file import read_owner
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.spawn import spawn_owner
owner = spawn_owner(2, OwnerSettings({LOCAL}), guarded={guarded})
print(owner.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=END_S)
    try:
        descriptor = descriptor_of(int(run.stdout))
    except ProcessLookupError:
        return
    assert is_readable(descriptor, END_S)


def test_the_owner_imports_neither_jax_nor_what_compiles() -> None:
    code = "import distxla.jax.processes.owner_service, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "distxla.jax.processes.owner" in loaded
    assert [name for name in loaded if name.partition(".")[0] in ("jax", "jaxlib", "llvmlite", "ray")] == []
