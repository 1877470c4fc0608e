"""Every tested version of JAX in an environment of its own: `python -m tests.jax.each_version [VERSION...]`.

Each runs the tests of partitioning and of inputs, with this Python; those that the plugin takes, also the scenarios of
several processes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distxla.jax.private.backends import PLUGIN_TESTED
from tests.releases import try_releases

RELEASES = ("0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.0", "0.12.0.1")
TESTS = (
    "tests/jax/partitioner/test_partitioning.py",
    "tests/jax/partitioner/test_partitioner_input.py",
    "tests/jax/test_sharded_programs.py",
    "tests/jax/test_inputs.py",
    "tests/jax/partitioner/test_global_modules.py",
    "tests/jax/partitioner/test_constants.py",
)
OF_PROCESSES = tuple(
    f"tests/jax/processes/test_{name}.py" for name in ("agreement", "answers", "callbacks", "arrays", "launched")
)


def takes_plugin(release: str) -> bool:
    """Whether the plugin is tested with a release of jaxlib."""
    numbers = tuple(map(int, release.split(".")[:2]))
    return PLUGIN_TESTED[0] <= numbers <= PLUGIN_TESTED[1]


def main(releases: Sequence[str]) -> int:
    """1 if one does not pass."""
    failed = 0
    for release in releases:
        tests = (*TESTS, *OF_PROCESSES) if takes_plugin(release) else TESTS
        failed |= try_releases(["jax", "jaxlib"], [release], "test,jax", tests, unpinned=["flax"])
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or RELEASES))
