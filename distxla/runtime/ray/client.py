"""Ray's client in this process: its settings and its signal handlers, which it would keep or change behind our back."""

from __future__ import annotations

import ctypes
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGACTION_BYTES = 256  # more than the C library's struct has on any machine


@contextmanager
def loopback_allowed(ray_constants: Any) -> Iterator[None]:
    """Within, Ray does not replace 127.0.0.1 by the host's outward address."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


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
    """What SIGTERM does is as before when this is left: Ray's own handler prints stacks, and sets an alarm that aborts
    the process if it still lives 3 s later. Unlike `signal.signal` this works in every thread."""
    sigaction, before = ctypes.CDLL(None).sigaction, ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(int(signal.SIGTERM), None, before)
    try:
        yield
    finally:
        sigaction(int(signal.SIGTERM), before, None)


def say_nothing(data: object, ignore_prefix: bool = False) -> None:
    return None


def reread_environment() -> Any:
    """Let Ray read its settings and its token again, since it keeps what it found first. Returns the token's loader."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled

    Config.initialize("")
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    return loader
