"""A Ray cluster of several nodes on this machine, for runs with several hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from distxla.runtime.ray import embedded, versions
from tests.runtime.hosts import worker
from tests.runtime.hosts.forks import forking

STAND_IN = os.path.join(os.path.dirname(embedded.__file__), "agent.sh")


@contextmanager
def ray_nodes(cpus: Sequence[int], *, forked: bool = False) -> Iterator[Any]:
    """Within, a Ray cluster runs whose nodes have these numbers of CPUs; this process is to join the first one.

    forked: the nodes' workers are forks (forks.py) where the version of Ray is one whose workers can be; but for those
    of nodes that are added.
    Gives Ray's own handle: `address`, `list_all_nodes()`, `add_node`, `remove_node`.
    """
    directory = tempfile.mkdtemp(dir="/tmp", prefix="n-")  # short: sockets have names in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", directory)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        import ray
        from ray.cluster_utils import Cluster

        patch.setenv(worker.FOLDER, directory)
        is_forked = forked and versions.start_of(versions.installed()) is versions.Start.SERVERS
        ours = {"setup_worker_path": worker.__file__} if is_forked else {}
        first, *others = cpus
        head = {"num_cpus": first, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True, **ours}
        started = None
        try:
            with pytest.MonkeyPatch.context() as servers:
                if is_forked:
                    _start_no_agents(servers, directory)
                started = Cluster(initialize_head=True, head_node_args=head)
                for count in others:
                    started.add_node(num_cpus=count, **ours)
            started.wait_for_nodes()
            nodes = started.list_all_nodes() if is_forked else []
            with forking([node.all_processes["raylet"][0].process.pid for node in nodes], directory):
                yield started
        finally:
            ray.shutdown()
            if started is not None:
                started.shutdown()
            shutil.rmtree(directory, ignore_errors=True)


def _start_no_agents(patch: pytest.MonkeyPatch, directory: str) -> None:
    """Let a raylet start shells that only wait instead of its two agents, and no workers ahead; and the head node start
    no server for Ray's dashboard. The tests use none of these, and each takes half a second of processor time."""
    from ray._private import node, services

    start = services.start_ray_process
    agent = subprocess.list2cmdline(["/bin/sh", STAND_IN, str(os.getpid()), os.path.join(directory, "agents")])
    others = {f"--{kind}_agent_command": agent for kind in ("dashboard", "runtime_env")}
    others |= dict.fromkeys(("--metrics-agent-port", "--metrics_export_port", "--runtime_env_agent_port"), "1")
    others |= {"--num_prestart_python_workers": "0"}

    def started(command: list[str], process_type: str, *arguments: Any, **options: Any) -> Any:
        if process_type == "raylet":
            command = [_replaced(word, others) for word in command]
            command.append("--dashboard_agent_listen_port=1")
        return start(command, process_type, *arguments, **options)

    patch.setattr(services, "start_ray_process", started)
    patch.setattr(node.Node, "start_api_server", lambda *_, **__: None)


def _replaced(option: str, values: dict[str, str]) -> str:
    name = option.partition("=")[0]
    return f"{name}={values[name]}" if name in values else option
