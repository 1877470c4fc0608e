"""Partitioned modules as bytes."""

from __future__ import annotations

import pytest

from distxla.errors import ArgumentError
from distxla.jax.partitioner.partitioned_bytes import pack_partitioned, unpack_partitioned
from distxla.jax.partitioner.partitioning import Partitioned

ONE = Partitioned(
    "HloModule m", b"\0proto", 2, 1, ("f32[2]",), ("f32[]",), ("{replicated}",), ("{replicated}",), "0.12", 0.5, False
)


def test_they_come_back() -> None:
    found = unpack_partitioned(pack_partitioned(ONE))
    assert (found, found.proto, found.seconds) == (ONE, b"\0proto", 0.5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1",
        b"\x10\0\0\0{}",
        b"\2\0\0\0{}",
        b"\2\0\0\0[]",
        pack_partitioned(ONE).replace(b'"jaxlib"', b'"jaxlab"'),
    ],
)
def test_other_bytes_are_refused(data) -> None:
    with pytest.raises(ArgumentError, match="no partitioned module"):
        unpack_partitioned(data)
