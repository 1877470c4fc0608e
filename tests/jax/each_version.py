"""Every tested version of JAX in an environment of its own: `python -m tests.jax.each_version [VERSION...]`.

Each runs the tests of partitioning and of inputs, with this Python.
"""

from __future__ import annotations

import sys

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

if __name__ == "__main__":
    sys.exit(try_releases(["jax", "jaxlib"], sys.argv[1:] or RELEASES, "test,jax", TESTS, unpinned=["flax"]))
