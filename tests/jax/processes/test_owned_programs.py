"""Programs of real processes are partitioned and compiled once for all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from distxla.machine.processes import command_line, process_ids
from tests.jax.processes.group import Group

MODULES = {
    "partitioner": b"distxla.jax.partitioner.partition_worker",
    "compiler": b"distxla.compiler.worker",
    "owner": b"distxla.jax.processes.owner_process",
}


def workers(folder: Path) -> Counter[str]:
    """The processes of the group with this cache, by what they run; a fork for one module is not counted."""
    found: Counter[str] = Counter()
    for pid in process_ids():
        try:
            command, environment = command_line(pid), Path(f"/proc/{pid}/environ").read_bytes()
            parent = command_line(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:
            continue
        if f"DISTXLA_CACHE_DIR={folder}\0".encode() in environment and command != parent:
            found.update(name for name, module in MODULES.items() if module in command.split(b"\0"))
    return found


@pytest.mark.exhaustive
def test_four_processes_have_one_partitioner_and_one_compiler(tmp_path: Path) -> None:
    script = """
        import distxla.jax.partitioner.partition_server as partition_server
        from distxla.compiler import server_share
        def step(v): return jax.lax.psum(v * 7, "d")
        for k in range(2):
            print(here(mapped(step)(sharded(np.arange(4.0)))))
        print(partition_server.SERVER.pid, len(server_share.opened.servers), server_share.compiled_programs())
    """
    with Group(4, devices=1, DISTXLA_CACHE_DIR=str(tmp_path)) as group:
        assert group.printed(script) == ["[[42.0]]\n[[42.0]]\nNone 0 0"] * 4
        assert workers(tmp_path) == {"partitioner": 1, "compiler": 1, "owner": 1}
    assert workers(tmp_path) == {}
