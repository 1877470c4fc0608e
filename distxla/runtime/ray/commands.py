"""Command lines of the embedded Ray's servers and workers, as Ray 2.55 to 2.60 want them (versions.py)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

from distxla.lazy_dataclass import dataclass

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 80_000_000
SESSION = "session"
SHARED_MEMORY = "/dev/shm"
MOST_REQUEST_BYTES = 3000  # of PIPE_BUF, with room for the values of the raylet's placeholders


@dataclass(frozen=True)
class RayFiles:
    """Files of an embedded Ray. package: the folder of the package ray.  private: a directory of this user alone.
    node: hexadecimal id."""

    package: Path
    private: str
    node: str

    @property
    def directory(self) -> str:
        """Ray's temporary directory, which Ray opens to all users: so it is inside a private one."""
        return os.path.join(self.private, "t")

    @property
    def session(self) -> str:
        return os.path.join(self.directory, "s")

    @property
    def logs(self) -> str:
        return os.path.join(self.session, "logs")

    @property
    def sockets(self) -> str:
        return os.path.join(self.session, "sockets")

    @property
    def fifo(self) -> str:
        """The FIFO that takes requests for workers to the zygote."""
        return os.path.join(self.private, "workers")

    @property
    def forked(self) -> str:
        """The FIFO into which the zygote writes a byte for each worker."""
        return os.path.join(self.private, "forked")

    @property
    def port(self) -> str:
        """The file into which the gcs_server writes its port."""
        return os.path.join(self.session, f"gcs_server_port_{self.node}")

    @property
    def introduced(self) -> str:
        """The file into which the zygote writes the gcs_server's address and the cluster's id."""
        return os.path.join(self.private, "introduced")

    @property
    def driver(self) -> str:
        """The socket of driver_process.py."""
        return os.path.join(self.private, "driver")

    @property
    def folders(self) -> list[str]:
        """The folders that the servers expect, parents first."""
        return [self.directory, self.session, self.logs, self.sockets, os.path.join(self.session, "runtime")]


def gcs_command(place: RayFiles) -> list[str]:
    return [
        str(place.package / "core/src/ray/gcs/gcs_server"),
        f"--log_dir={place.logs}",
        f"--stdout_filepath={place.logs}/gcs_server.out",
        f"--stderr_filepath={place.logs}/gcs_server.err",
        "--config_list=" + base64.b64encode(json.dumps({"event_stats": False}).encode()).decode(),
        "--gcs_server_port=0",
        "--metrics-agent-port=1",
        f"--node-ip-address={LOOPBACK}",
        f"--session-name={SESSION}",
        f"--session-dir={place.session}",
        f"--node-id={place.node}",
    ]


def worker_command(place: RayFiles, address: str, cluster: str) -> list[str]:
    """The command that the raylet runs for each worker, after it has replaced the two placeholders.

    address: of the gcs_server.  cluster: its id, hexadecimal.
    """
    scripts = place.package / "_private" / "workers"
    command = [
        sys.executable,
        str(scripts / "setup_worker.py"),
        str(scripts / "default_worker.py"),
        f"--node-ip-address={LOOPBACK}",
        "--node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER",
        f"--object-store-name={place.sockets}/plasma",
        f"--raylet-name={place.sockets}/raylet",
        "--redis-address=None",
        "--metrics-agent-port=0",
        "--runtime-env-agent-port=0",
        "--logging-rotate-bytes=1000000",
        "--logging-rotate-backup-count=1",
        f"--gcs-address={address}",
        f"--session-name={SESSION}",
        f"--temp-dir={place.directory}",
        "--webui=",
        f"--cluster-id={cluster}",
        "RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER",
    ]
    if sum(len(os.fsencode(word)) + 1 for word in command) > MOST_REQUEST_BYTES:
        return command
    return ["/bin/sh", str(Path(__file__).with_name("worker.sh")), place.fifo, *command]


def zygote_command(place: RayFiles, raylet: int) -> list[str]:
    """The command of the zygote (zygote.py). raylet: a process id."""
    script = str(Path(__file__).with_name("zygote.py"))
    files = [place.fifo, place.forked, place.port, place.introduced, place.driver]
    return [sys.executable, "-P", script, str(raylet), *files]


def raylet_command(place: RayFiles, address: str, cluster: str, workers: int) -> list[str]:
    """The command of the raylet. workers: how many may start at the same time."""
    # The raylet insists on two agents and ends when they end. They are never called: runtime environments
    # and metrics are not used, so a process that only waits replaces each, and their ports are not used.
    stand_in = str(Path(__file__).with_name("agent.sh"))
    agent = subprocess.list2cmdline(["/bin/sh", stand_in, str(os.getpid()), place.private])
    store = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else place.session
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resources = {
        f"node:{LOOPBACK}": 1.0,
        "node:__internal_head__": 1.0,
        "CPU": float(os.cpu_count() or 1),
        "memory": float(memory),
        "object_store_memory": float(OBJECT_STORE_BYTES),
    }
    return [
        str(place.package / "core/src/ray/raylet/raylet"),
        f"--raylet_socket_name={place.sockets}/raylet",
        f"--store_socket_name={place.sockets}/plasma",
        "--object_manager_port=0",
        "--min_worker_port=0",
        "--max_worker_port=0",
        "--node_manager_port=0",
        f"--node_id={place.node}",
        f"--node_ip_address={LOOPBACK}",
        f"--maximum_startup_concurrency={max(4, workers)}",
        "--static_resource_list=" + ",".join(f"{name},{amount}" for name, amount in resources.items()),
        f"--python_worker_command={subprocess.list2cmdline(worker_command(place, address, cluster))}",
        "--java_worker_command=",
        "--cpp_worker_command=",
        "--native_library_path=",
        f"--temp_dir={place.directory}",
        f"--session_dir={place.session}",
        f"--log_dir={place.logs}",
        f"--resource_dir={place.session}/runtime",
        "--metrics-agent-port=1",
        "--metrics_export_port=1",
        "--runtime_env_agent_port=1",
        "--dashboard_agent_listen_port=1",
        f"--object_store_memory={OBJECT_STORE_BYTES}",
        f"--plasma_directory={store}",
        f"--fallback_directory={place.session}",
        "--ray-debugger-external=0",
        f"--gcs-address={address}",
        f"--session-name={SESSION}",
        "--labels=",
        f"--cluster-id={cluster}",
        "--head",
        # with others, `ray.init` waits for them holding the GIL, so a failure could not be noticed here
        "--num_prestart_python_workers=0",
        f"--dashboard_agent_command={agent}",
        f"--runtime_env_agent_command={agent}",
        f"--stdout_filepath={place.logs}/raylet.out",
        f"--stderr_filepath={place.logs}/raylet.err",
    ]
