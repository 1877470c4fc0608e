"""Which devices a process has, and what must be equal in all processes."""

from __future__ import annotations

import dataclasses

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes.world import Introduction, World, difference_of, require_equal

ONE = Introduction("b-1", "here", 11, 4, backend="cpu", jax="0.12", jax_config={"x64": False}, argv=("a",))


def test_devices_of_processes() -> None:
    world = World(1, 3, 4)
    assert (world.devices, world.slice_of(1), world.process_of(7)) == (12, range(4, 8), 1)
    assert world.members([8, 1, 2]) == (0, 2)


def test_an_introduction_comes_back() -> None:
    assert Introduction.of_json(ONE.to_json() | {"argv": ["a"], "checks": []}) == ONE
    with pytest.raises(ClusterError, match=r"Introduction\.pid: expected int"):
        Introduction.of_json(ONE.to_json() | {"pid": "x"})


def test_some_of_it_may_differ() -> None:
    assert difference_of([ONE, dataclasses.replace(ONE, host="there", pid=12, argv=("b",))]) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"devices": 8},
            "devices: process 0 has 4, process 2 has 8 (hint: give each process the same DISTXLA_DEVICES)",
        ),
        (
            {"boot_id": "b-2"},
            "boot_id: process 0 has 'b-1', process 2 has 'b-2' (hint: give processes of "
            "several machines the address of a Ray that runs on all of them, DISTXLA_ADDRESS)",
        ),
        (
            {"jax": "0.11"},
            "jax: process 0 has '0.12', process 2 has '0.11' (hint: install the same version everywhere)",
        ),
        ({"backend": "interpreted"}, "backend: process 0 has 'cpu', process 2 has 'interpreted'"),
        ({"jax_config": {"x64": True}}, "x64: process 0 has False, process 2 has True"),
        ({"jax_config": {}}, "x64: process 0 has False, process 2 has None"),
    ],
)
def test_all_else_must_be_equal(change, said) -> None:
    given = [ONE, ONE, dataclasses.replace(ONE, **change)]
    assert difference_of(given) == said
    with pytest.raises(ClusterError, match="the processes can't run together: "):
        require_equal(given)
