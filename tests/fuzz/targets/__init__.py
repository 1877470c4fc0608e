"""One file a target; `load` gives the target by name."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

NAMES = ("parser", "verifier", "npz", "frames", "cache")


@dataclass(frozen=True)
class Target:
    """A function to fuzz, and its inputs.

    check: takes any bytes; raises exceptions that the code under test must not raise, AssertionError for another broken
        promise.
    seeds: inputs to begin with, cheap to make; they are not kept in corpus/.
    mutate: a changed input, None to let the fuzzer change it as it likes.
    weight: share of the time.  largest: bytes of an input.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Callable[[bytes, random.Random], bytes | None]
    weight: int
    largest: int


def load(name: str) -> Target:
    """Import the target's file, and with it the code under test."""
    found = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
    assert isinstance(found, Target)
    return found
