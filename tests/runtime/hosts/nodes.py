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

from distxla.runtime.ray import commands, versions
from tests.runtime.hosts.forks import forking

SCRIPTS = os.path.dirname(commands.__file__)


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

        is_forked = forked and versions.start_of(versions.installed()) is versions.Start.SERVERS
        first, *others = cpus
        head = {"num_cpus": first, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        started = None
        requests: dict[int, str] = {}
        try:
            with pytest.MonkeyPatch.context() as servers:
                if is_forked:
                    requests = _start_like_embedded(servers, directory)
                started = Cluster(initialize_head=True, head_node_args=head)
                for count in others:
                    started.add_node(num_cpus=count)
            started.wait_for_nodes()
            with forking(requests):
                yield started
        finally:
            ray.shutdown()
            if started is not None:
                started.shutdown()
            shutil.rmtree(directory, ignore_errors=True)


def _start_like_embedded(patch: pytest.MonkeyPatch, directory: str) -> dict[int, str]:
    """Let a raylet start shells that only wait instead of its two agents, no workers ahead, and for each worker a shell
    that asks for a fork; and the head node start no server for Ray's dashboard. The tests use none of these, each of
    which takes half a second of processor time, and a Python that asks takes ten times a shell's.

    The result will have, by the raylets' process ids, the FIFOs that the shells write to.
    """
    from ray._private import node, services

    start = services.start_ray_process
    agent = subprocess.list2cmdline(["/bin/sh", f"{SCRIPTS}/agent.sh", str(os.getpid()), f"{directory}/agents"])
    others = {f"--{kind}_agent_command": agent for kind in ("dashboard", "runtime_env")}
    others |= dict.fromkeys(("--metrics-agent-port", "--metrics_export_port", "--runtime_env_agent_port"), "1")
    others |= {"--num_prestart_python_workers": "0"}
    requests: dict[int, str] = {}

    def started(command: list[str], process_type: str, *arguments: Any, **options: Any) -> Any:
        if process_type != "raylet":
            return start(command, process_type, *arguments, **options)
        fifo = f"{directory}/workers{len(requests)}"
        command = [_asking(_replaced(word, others), fifo) for word in command]
        command.append("--dashboard_agent_listen_port=1")
        found = start(command, process_type, *arguments, **options)
        requests[found.process.pid] = fifo
        return found

    patch.setattr(services, "start_ray_process", started)
    patch.setattr(node.Node, "start_api_server", lambda *_, **__: None)
    return requests


def _asking(option: str, fifo: str) -> str:
    """The raylet's option with the workers' command: worker.sh before it."""
    name, _, command = option.partition("=")
    if name != "--python_worker_command" or len(os.fsencode(command)) > commands.MOST_REQUEST_BYTES:
        return option
    return f"{name}={subprocess.list2cmdline(['/bin/sh', f'{SCRIPTS}/worker.sh', fifo])} {command}"


def _replaced(option: str, values: dict[str, str]) -> str:
    name = option.partition("=")[0]
    return f"{name}={values[name]}" if name in values else option
