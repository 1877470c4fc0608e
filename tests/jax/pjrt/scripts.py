"""JAX on distxla's devices, in a process of its own: a process can't change its JAX's devices."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[3]
BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import distxla.jax
"""
HELPERS = """
def stop(pid):  # returns when all threads have stopped: the one that computes may be the last
    os.kill(pid, signal.SIGSTOP)
    states = lambda: [open(f"/proc/{pid}/task/{name}/stat").read().rpartition(")")[2].split()[0]
                      for name in os.listdir(f"/proc/{pid}/task")]
    while set(states()) != {"T"}:
        time.sleep(0.001)

def cluster():  # that of JAX's devices
    from distxla.runtime import cluster
    (found,) = cluster._open - getattr(jax, "lost_clusters", set())
    return found

def replicas():
    return [pid for _, _, pid in cluster().replicas_info]

def replace_devices():  # by new ones; a lost cluster is left to the end of the process
    import jax.extend.backend
    jax.lost_clusters = {cluster()} | getattr(jax, "lost_clusters", set())
    jax.extend.backend.clear_backends()
"""


def run(
    body: str, *, devices: int | None = 2, seconds: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script; with `devices` behind an `install` of so many."""
    install = "" if devices is None else f"distxla.jax.install(partitions={devices})\n"
    text = BEGIN + HELPERS + install + textwrap.dedent(body)
    theirs = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", text],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=theirs,
        check=False,
    )


def printed(body: str, **how: object) -> str:
    """What a script prints that must end well."""
    done = run(body, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def joined(bodies: dict[str, str]) -> str:
    """One script of several, which tells whose output follows."""
    marked = (f"print('script: {name}', flush=True)\n{textwrap.dedent(body)}" for name, body in bodies.items())
    return "\n".join(marked)


def parted(out: str) -> dict[str, str]:
    """What each of the joined scripts has printed, by name."""
    parts = [part.partition("\n") for part in out.split("script: ")[1:]]
    return {name: text for name, _, text in parts}
