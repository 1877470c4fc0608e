"""Checks of values in programs of several processes: NaN and Inf, and arrays that are declared to be the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jax.processes.group import Group


@pytest.fixture(scope="module")
def checked(nothing_is_left_behind: None) -> Iterator[Group]:
    with Group(2, devices=2, DISTXLA_CHECK="nan,replication") as group:
        yield group


def test_values_that_are_not_finite_are_told_to_all(checked: Group) -> None:
    script = """
        def step(v):
            return jax.lax.psum(jnp.log(v - 3), "d")
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0) + 4)))))
        print(caught(lambda: here(mapped(step)(sharded(np.arange(4.0) + 3 * (1 - PROCESS))))))
        require_right_total()
    """
    for told in checked.printed(script):
        first, *others = told.splitlines()
        assert first.startswith("[[3.17")
        assert "on device 2 (process 1)" in others[0]
        assert "script.py:3" in "\n".join(others)


def test_arguments_that_differ_between_processes_are_told_to_all(checked: Group) -> None:
    script = """
        def made(value):
            everywhere = NamedSharding(MESH, P())
            return jax.make_array_from_callback((3,), everywhere, lambda index: np.array([1, value, 2], np.float32))
        step = jax.jit(lambda v: v + 1)
        print(here(step(made(5)))[0])
        print(caught(lambda: here(step(made(5 + PROCESS)))))
        require_right_total()
    """
    for told in checked.printed(script):
        first, second = told.splitlines()[:2]
        assert first == "[2.0, 6.0, 3.0]"
        assert "arg0 is declared the same on devices 0-3; devices 2, 3 have another" in second
        assert "element [1] is 6.0 on device 2 (process 1), 5.0 on device 0 (process 0)" in second


def test_values_that_must_be_equal_are_compared_by_jax(checked: Group) -> None:
    script = """
        multihost_utils.assert_equal(np.arange(3), "all the same")
        print(caught(lambda: multihost_utils.assert_equal(np.arange(3) + PROCESS, "the step")).splitlines()[0])
        require_right_total()
    """
    for told in checked.printed(script):
        assert told.startswith("AssertionError: the step")


def test_programs_with_values_that_are_declared_the_same_inside_run(checked: Group) -> None:
    """No process sees the values of all devices: they are not compared."""
    script = """
        def total(v):
            return jax.lax.psum(jnp.sum(v), "d")
        part = jax.shard_map(total, mesh=MESH, in_specs=P("d"), out_specs=P(), check_vma=False)
        print(here(jax.jit(lambda v: v * part(v))(sharded(np.arange(4.0))))[0])
        require_right_total()
    """
    for told in checked.printed(script):
        assert told
