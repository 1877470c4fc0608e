"""Ray's client in a process. It caches settings and replaces signal handlers; both are undone here."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distxla import clock
from distxla.machine.processes import end_with_parent
from distxla.runtime.ray import commands

_LOOK_S = 0.002
_SIGACTION_BYTES = 256  # more than the C library's struct has on any machine


def introduce(port: str, answer: str, parent: str) -> None:
    """Store in a new gcs_server the values that other processes read, and write "ADDRESS CLUSTER" into `answer`.

    port: the file into which the server writes it; blocks until that is there.  parent: the process that has forked
    this one, with which it ends: the server may never come, and Ray waits for a minute for one that has gone.
    """
    end_with_parent()
    if os.getppid() != int(parent):
        return
    from ray._common.usage import usage_lib
    from ray._private import ray_constants
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

    while not os.path.exists(port) or not (text := Path(port).read_text()).isdigit():
        clock.sleep(_LOOK_S)
    address = f"{commands.LOOPBACK}:{text}"
    gcs = GcsClient(address=address)
    gcs.internal_kv_put(b"session_name", commands.SESSION.encode(), False, ray_constants.KV_NAMESPACE_SESSION)
    usage_lib.put_cluster_metadata(gcs, ray_init_cluster=True)
    Path(answer + ".new").write_text(f"{address} {gcs.cluster_id.hex()}")
    os.rename(answer + ".new", answer)


def join(address: str, node: str = "", *, local: str = "") -> Callable[..., None]:
    """Join the Ray at this address, and return Ray's function that prints workers' output, which is replaced.

    Otherwise Ray would print messages on dead workers into the user's output; ReplicaLostError reports them.

    node: its node's id, if known: Ray then looks for no raylet among all processes of the machine.  local: a directory
    without modules; if given, actors' classes must be importable. Then Ray neither pickles them nor disassembles their
    methods for a hash, and workers import them.
    """
    import ray
    from ray._private import ray_constants, services, worker
    from ray.job_config import JobConfig

    ours: list[tuple[Any, str, object]] = [
        (ray_constants, "ENABLE_RAY_CLUSTER", False),  # else 127.0.0.1 is replaced by the host's outward address
        # else, under `uv run`, workers ask for an environment of their own, which embedded servers can't make
        (ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False),
    ]
    if node:
        ours += [
            (services, "find_node_ids", lambda: {node}),
            # it looks again after a second if the raylet, whose socket is there, has not introduced itself yet
            (services, "time", SimpleNamespace(time=time.time, sleep=lambda _: clock.sleep(_LOOK_S))),
        ]
    more = {"job_config": JobConfig(code_search_path=[local])} if local else {}
    with _replaced(ours), quiet(), same_end(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of accelerators, which are not used
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False, **more)
    printer: Callable[..., None] = worker.print_to_stdstream
    worker.print_to_stdstream = _say_nothing
    return printer


@contextmanager
def _replaced(ours: Sequence[tuple[Any, str, object]]) -> Iterator[None]:
    """Within, these attributes of Ray's modules have these values, as far as its version has them."""
    theirs = [(module, name, getattr(module, name)) for module, name, _ in ours if hasattr(module, name)]
    for module, name, value in ours:
        if hasattr(module, name):
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in theirs:
            setattr(module, name, value)


@contextmanager
def quiet() -> Iterator[None]:
    """Within, Ray logs errors only: it warns, among others, of not being started in the main thread."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def same_end() -> Iterator[None]:
    """Restore the action of SIGTERM after the with-body: Ray's own handler prints stacks, and sets an alarm that
    aborts the process 3 s later. In the main thread Ray installs a Python handler, in others
    only its C code may install one."""
    sigaction, before = ctypes.CDLL(None).sigaction, ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(int(signal.SIGTERM), None, before)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)
        sigaction(int(signal.SIGTERM), before, None)


def _say_nothing(data: object, ignore_prefix: bool = False) -> None:
    return None


def reread_environment() -> Any:
    """Let Ray read its settings and its token again, since it caches them.

    Returns the token's loader; None of a Ray before 2.52, which has no tokens.
    """
    compiled: Any = importlib.import_module("ray._raylet")
    compiled.Config.initialize("")
    kind = getattr(compiled, "AuthenticationTokenLoader", None)
    if kind is None:
        return None
    loader = kind.instance()
    loader.reset_cache()
    return loader
