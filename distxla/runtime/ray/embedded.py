"""A Ray of our own for one driver process: two servers on the loopback interface, taken down with the cluster.

Ray's `ray.init()` starts a dashboard, agents, a log monitor and an autoscaler as well, and picks the host's outward
address; here the two servers that actors need (gcs_server, raylet) are started directly, with the address 127.0.0.1
(both then listen there only, and so do workers), with token authentication and a private directory. `ray.init(address)`
joins them. A supervisor process (supervisor.py) is the parent of both, and takes everything down when the driver ends,
however it ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distxla.errors import ClusterError
from distxla.runtime.ray import client, commands
from distxla.runtime.ray.commands import Place

START_LIMIT_S = 60.0
LONGEST_SOCKET_PATH = 107  # bytes, of a Unix socket's address
_STACK = re.compile(r"\(\+0x|    @ |StackTrace|\*\*\*")  # lines of a server's last words that tell a user nothing
_AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class EmbeddedRay:
    """gcs_server and raylet of this process, under a supervisor. Blocking: `start` takes about 0.6 s, `close` 0.2 s."""

    def __init__(self) -> None:
        self._place = Place(_package(), _private_directory(), secrets.token_hex(28))
        self._servers: list[int] = []  # process ids
        self._token = secrets.token_hex(32)
        self._environment: dict[str, str | None] = {}
        self._printer: Any = None
        try:
            for path in self._place.folders:
                os.mkdir(path, 0o700)
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is the driver's alone
            )
        except OSError as error:
            shutil.rmtree(self._place.private, ignore_errors=True)
            raise ClusterError(f"the embedded Ray cannot be started: {error.strerror}") from error
        self._send({"directory": self._place.private})

    def start(self, workers: int) -> None:
        """Start both servers and join them; `workers` processes are started ahead of the actors that will want them.

        Raises ClusterError with the end of the servers' messages if they do not come up.
        """
        self._run(commands.gcs_command(self._place))
        with self._authenticated():
            import ray
            from ray._common.usage import usage_lib
            from ray._private import ray_constants
            from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

            client.reread_environment()
            address = f"{commands.LOOPBACK}:{self._gcs_port()}"
            gcs = GcsClient(address=address)
            cluster = gcs.cluster_id.hex()
            gcs.internal_kv_put(b"session_name", commands.SESSION.encode(), False, ray_constants.KV_NAMESPACE_SESSION)
            usage_lib.put_cluster_metadata(gcs, ray_init_cluster=True)
            self._run(commands.raylet_command(self._place, address, cluster, workers))
            self._wait_for(Path(self._place.sockets, "raylet"))
            with client.loopback_allowed(ray_constants), client.quiet(), client.same_end():
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
                self._printer = ray._private.worker.print_to_stdstream
                # Ray's words on a worker that died would come between the user's output: ReplicaLostError says it
                ray._private.worker.print_to_stdstream = client.say_nothing

    def close(self) -> None:
        """Leave Ray, end the servers, remove the directory. Never raises."""
        ray: Any = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            ray.shutdown()
        if self._printer is not None:
            ray._private.worker.print_to_stdstream = self._printer
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(15)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        shutil.rmtree(self._place.private, ignore_errors=True)
        self._restore_environment()

    def _send(self, request: dict[str, object]) -> None:
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
            self._supervisor.stdin.flush()
        except OSError as error:
            raise ClusterError(f"the supervisor of the embedded Ray has ended: {error}") from error

    def _run(self, command: list[str]) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in _AUTHENTICATION}
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 stays 127.0.0.1
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_pipe_based_agent_to_parent_health_check": "1",  # agent.sh waits for the end of that pipe
            # added to the driver's; Ray's own 15 would let replicas run after everything else on the machine
            "RAY_worker_niceness": "0",
        }
        environment.pop("RAY_ADDRESS", None)
        self._send({"command": command, "environment": environment})
        assert self._supervisor.stdout is not None
        answer = self._supervisor.stdout.readline()
        if not answer.strip().isdigit():
            raise ClusterError(f"could not start {Path(command[0]).name} of the embedded Ray")
        self._servers.append(int(answer))
        return int(answer)

    def _gcs_port(self) -> int:
        name = f"gcs_server_port_{self._place.node}"
        path = Path(self._place.session, name)
        self._wait_for(path)
        end = time.monotonic() + 5
        while not (text := path.read_text()).isdigit():
            if time.monotonic() > end:
                raise ClusterError(f"the embedded Ray wrote no port: {text!r}")
            time.sleep(0.002)
        return int(text)

    def _wait_for(self, path: Path) -> None:
        end = time.monotonic() + START_LIMIT_S
        while not path.exists():
            ended = [pid for pid in self._servers if not os.path.exists(f"/proc/{pid}")]  # the supervisor reaps them
            if time.monotonic() > end or ended or self._supervisor.poll() is not None:
                raise ClusterError(f"the embedded Ray did not start: no {path.name}\n{self._messages()}")
            time.sleep(0.002)

    def _messages(self) -> str:
        lines: list[str] = []
        for path in sorted(Path(self._place.logs).glob("*.err")):
            lines += [line for line in path.read_text(errors="replace").splitlines() if not _STACK.search(line)][:8]
        return "\n".join("".join(c for c in line[:300] if c.isprintable()) for line in lines)

    @contextmanager
    def _authenticated(self) -> Iterator[None]:
        """The token stays in this process's environment until `close`: Ray may read it again."""
        self._environment = {name: os.environ.get(name) for name in _AUTHENTICATION}
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=self._token)
        yield

    def _restore_environment(self) -> None:
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._environment:
            client.reread_environment()


def _package() -> Path:
    """The folder of the package ray, which need not be imported for it."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        raise ClusterError("the package ray is not installed")
    return Path(found.origin).parent


def _private_directory() -> str:
    """A new directory of this user alone, with a path that leaves room for the names of sockets."""
    room = LONGEST_SOCKET_PATH - len("/distxla-01234567/t/s/sockets/plasma")
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > room:
        parent = "/tmp"
    try:
        return tempfile.mkdtemp(prefix="distxla-", dir=parent)
    except OSError as error:
        raise ClusterError(f"the embedded Ray needs a directory in {parent}: {error.strerror}") from error
