"""A Ray of our own for one driver process: two servers on the loopback interface, taken down with the cluster.

Ray's `ray.init()` starts a dashboard, agents, a log monitor and an autoscaler as well, and picks the host's outward
address; here the two servers that actors need (gcs_server, raylet) are started directly, with the address 127.0.0.1
(both then listen there only, and so do workers), with token authentication and a private directory. `ray.init(address)`
joins them. A supervisor process (supervisor.py) is the parent of both, and takes everything down when the driver ends,
however it ends.

A process has one Ray: several clusters of one driver share it, the last one takes it down. A Ray that the user's own
process has already joined is used as it is and left alone.
"""

from __future__ import annotations

import base64
import ctypes
import importlib.util
import json
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distxla.errors import ClusterError

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80_000_000
START_LIMIT_S = 60.0
LONGEST_SOCKET_PATH = 107  # bytes, of a Unix socket's address
_SESSION = "session"
_SESSION_FOLDERS = ("logs", "sockets", "runtime")
_SHARED_MEMORY = "/dev/shm"
_SIGACTION_BYTES = 256  # more than the C library's struct has on any machine
_STACK = re.compile(r"\(\+0x|    @ |StackTrace|\*\*\*")  # lines of a server's last words that tell a user nothing
_AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")

_lock = threading.Lock()
_users = 0
_running: EmbeddedRay | None = None
_joined: str | None = None  # the address of a Ray that others have started and this module has joined


class EmbeddedRay:
    """gcs_server and raylet of this process, under a supervisor. Blocking: `start` takes about 0.6 s, `close` 0.2 s."""

    def __init__(self) -> None:
        self._private = _private_directory()
        self._directory = os.path.join(self._private, "t")  # Ray opens this one to everybody: hence one above it
        self._session = os.path.join(self._directory, "s")
        self._servers: list[int] = []  # process ids
        self._token = secrets.token_hex(32)
        self._node = secrets.token_hex(28)
        self._environment: dict[str, str | None] = {}
        self._printer: Any = None
        try:
            for path in (self._directory, self._session, *(f"{self._session}/{n}" for n in _SESSION_FOLDERS)):
                os.mkdir(path, 0o700)
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is the driver's alone
            )
        except OSError as error:
            shutil.rmtree(self._private, ignore_errors=True)
            raise ClusterError(f"the embedded Ray cannot be started: {error.strerror}") from error
        self._send({"directory": self._private})

    def start(self, workers: int) -> None:
        """Start both servers and join them; `workers` processes are started ahead of the actors that will want them.

        Raises ClusterError with the end of the servers' messages if they do not come up.
        """
        found = importlib.util.find_spec("ray")
        if found is None or found.origin is None:
            raise ClusterError("the package ray is not installed")
        folder = Path(found.origin).parent
        self._run(self._gcs_command(folder))
        with self._authenticated():
            import ray
            from ray._common.usage import usage_lib
            from ray._private import ray_constants
            from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

            _reread_environment()
            address = f"{LOOPBACK}:{self._gcs_port()}"
            client = GcsClient(address=address)
            cluster = client.cluster_id.hex()
            client.internal_kv_put(b"session_name", _SESSION.encode(), False, ray_constants.KV_NAMESPACE_SESSION)
            usage_lib.put_cluster_metadata(client, ray_init_cluster=True)
            self._run(self._raylet_command(folder, address, cluster, workers))
            self._wait_for(Path(self._session, "sockets", "raylet"))
            with _loopback_allowed(ray_constants), _quiet(), _same_end():
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
                self._printer = ray._private.worker.print_to_stdstream
                # Ray's words on a worker that died would come between the user's output: ReplicaLostError says it
                ray._private.worker.print_to_stdstream = _say_nothing

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
        shutil.rmtree(self._private, ignore_errors=True)
        self._restore_environment()

    def _gcs_command(self, folder: Path) -> list[str]:
        logs = os.path.join(self._session, "logs")
        return [
            str(folder / "core/src/ray/gcs/gcs_server"),
            f"--log_dir={logs}",
            f"--stdout_filepath={logs}/gcs_server.out",
            f"--stderr_filepath={logs}/gcs_server.err",
            "--config_list=" + base64.b64encode(json.dumps({"event_stats": False}).encode()).decode(),
            "--gcs_server_port=0",
            "--metrics-agent-port=1",
            f"--node-ip-address={LOOPBACK}",
            f"--session-name={_SESSION}",
            f"--session-dir={self._session}",
            f"--node-id={self._node}",
        ]

    def _raylet_command(self, folder: Path, address: str, cluster: str, workers: int) -> list[str]:
        logs, sockets = os.path.join(self._session, "logs"), os.path.join(self._session, "sockets")
        scripts = folder / "_private" / "workers"
        worker = [
            sys.executable,
            str(scripts / "setup_worker.py"),
            str(scripts / "default_worker.py"),
            f"--node-ip-address={LOOPBACK}",
            "--node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER",
            f"--object-store-name={sockets}/plasma",
            f"--raylet-name={sockets}/raylet",
            "--redis-address=None",
            "--metrics-agent-port=0",
            "--runtime-env-agent-port=0",
            "--logging-rotate-bytes=1000000",
            "--logging-rotate-backup-count=1",
            f"--gcs-address={address}",
            f"--session-name={_SESSION}",
            f"--temp-dir={self._directory}",
            "--webui=",
            f"--cluster-id={cluster}",
            "RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER",
        ]
        # The raylet insists on two agents and ends when they end. Nobody calls them: no runtime environment is asked
        # for and no metrics are wanted, so a process that only waits stands in for each, and their ports are not used.
        stand_in = str(Path(__file__).with_name("agent.sh"))
        agent = subprocess.list2cmdline(["/bin/sh", stand_in, str(os.getpid()), self._private])
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resources = {
            f"node:{LOOPBACK}": 1.0,
            "node:__internal_head__": 1.0,
            "CPU": float(os.cpu_count() or 1),
            "memory": float(memory),
            "object_store_memory": float(OBJECT_STORE_BYTES),
        }
        return [
            str(folder / "core/src/ray/raylet/raylet"),
            f"--raylet_socket_name={sockets}/raylet",
            f"--store_socket_name={sockets}/plasma",
            "--object_manager_port=0",
            "--min_worker_port=0",
            "--max_worker_port=0",
            "--node_manager_port=0",
            f"--node_id={self._node}",
            f"--node_ip_address={LOOPBACK}",
            f"--maximum_startup_concurrency={max(4, workers)}",
            "--static_resource_list=" + ",".join(f"{name},{amount}" for name, amount in resources.items()),
            f"--python_worker_command={subprocess.list2cmdline(worker)}",
            "--java_worker_command=",
            "--cpp_worker_command=",
            "--native_library_path=",
            f"--temp_dir={self._directory}",
            f"--session_dir={self._session}",
            f"--log_dir={logs}",
            f"--resource_dir={self._session}/runtime",
            "--metrics-agent-port=1",
            "--metrics_export_port=1",
            "--runtime_env_agent_port=1",
            "--dashboard_agent_listen_port=1",
            f"--object_store_memory={OBJECT_STORE_BYTES}",
            f"--plasma_directory={_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else self._session}",
            f"--fallback_directory={self._session}",
            "--ray-debugger-external=0",
            f"--gcs-address={address}",
            f"--session-name={_SESSION}",
            "--labels=",
            f"--cluster-id={cluster}",
            "--head",
            f"--num_prestart_python_workers={workers}",
            f"--dashboard_agent_command={agent}",
            f"--runtime_env_agent_command={agent}",
            f"--stdout_filepath={logs}/raylet.out",
            f"--stderr_filepath={logs}/raylet.err",
        ]

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
        name = f"gcs_server_port_{self._node}"
        path = Path(self._session, name)
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
        for path in sorted(Path(self._session, "logs").glob("*.err")):
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
            _reread_environment()


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


@contextmanager
def _loopback_allowed(ray_constants: Any) -> Iterator[None]:
    """Within, Ray does not replace 127.0.0.1 by the host's outward address."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Within, Ray logs errors only: it warns, among others, of not being started in the main thread."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _same_end() -> Iterator[None]:
    """What SIGTERM does is as before when this is left: Ray's own handler prints stacks, and sets an alarm that aborts
    the process if it still lives 3 s later. Unlike `signal.signal` this works in every thread."""
    sigaction, before = ctypes.CDLL(None).sigaction, ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(int(signal.SIGTERM), None, before)
    try:
        yield
    finally:
        sigaction(int(signal.SIGTERM), before, None)


def _say_nothing(data: object, ignore_prefix: bool = False) -> None:
    return None


def acquire(workers: int, address: str | None) -> bool:
    """Make `ray` usable in this process; True if `release` must be called for it.

    address: a Ray cluster to join; None for the embedded one. Blocks until joined. Raises ClusterError.
    """
    global _users, _running, _joined
    with _lock:
        if _joined is not None:
            if address not in (None, "auto", _joined, _head()):
                raise ClusterError(f"this process has joined the Ray at {_joined} and can join no other")
            _users += 1
            return True
        if _running is None:
            ray: Any = sys.modules.get("ray")
            if ray is not None and ray.is_initialized():
                return False
        if address is not None:
            if _running is not None:
                raise ClusterError("this process already runs an embedded Ray and can join no other")
            _join(address)
            _joined, _users = address, 1
            return True
        if _running is None:
            started = EmbeddedRay()
            try:
                started.start(workers)
            except BaseException:
                started.close()
                raise
            _running = started
        _users += 1
        return True


def release() -> None:
    """The counterpart of an `acquire` that returned True; the last one leaves Ray, and takes an embedded one down."""
    global _users, _running, _joined
    with _lock:
        _users -= 1
        if _users == 0 and _joined is not None:
            _joined = None
            ray: Any = sys.modules.get("ray")
            if ray is not None and ray.is_initialized():
                ray.shutdown()
        if _users == 0 and _running is not None:
            running, _running = _running, None
            running.close()


def _head() -> str:
    """The address of the Ray that this process has joined, as Ray spells it."""
    import ray

    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else ""


def _reread_environment() -> Any:
    """Let Ray read its settings and its token again, since it keeps what it found first. Returns the token's loader."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled

    Config.initialize("")
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    return loader


def _require_token(address: str) -> None:
    """ClusterError where the Ray there lets in only who has its token, and this process hasn't.

    `ray.init` would try again for half a minute and then say nothing of tokens. A client that names a cluster id of its
    own asks for none, and is answered at once: where the token is right, that the id is another one.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    loader = _reread_environment()
    wants = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    if wants and not loader.has_token(ignore_auth_mode=True):
        raise ClusterError(
            "RAY_AUTH_MODE=token, but there is no token: put it into RAY_AUTH_TOKEN, or its file into "
            "RAY_AUTH_TOKEN_PATH"
        )
    try:
        GcsClient(address=address, cluster_id=secrets.token_hex(28)).internal_kv_get(b"", b"", timeout=2)
    except AuthenticationError as error:
        if "InvalidAuthToken" not in str(error):
            return
        if wants:
            raise ClusterError(
                f"the Ray at {address} wants another token than RAY_AUTH_TOKEN or its file gives"
            ) from error
        raise ClusterError(
            f"the Ray at {address} lets in only who has its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or "
            "RAY_AUTH_TOKEN_PATH, a file; ~/.ray/auth_token by default)"
        ) from error
    except Exception:  # whatever else is wrong, ray.init says it
        return


def _join(address: str) -> None:
    if "://" in address:
        raise ClusterError(f"address {address!r}: a driver joins by host:port, not through a Ray client")
    host, _, port = address.rpartition(":")
    if port.isdigit():  # Ray itself tries for minutes, and may end the process
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            raise ClusterError(f"nothing answers at {address}: {error}") from error
        _require_token(address)
    import ray

    try:
        with _quiet(), _same_end():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"could not join the Ray cluster at {address}: {error}") from error
