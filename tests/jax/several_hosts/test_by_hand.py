"""JAX processes that are started by hand, on two hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jax.processes.group import Group
from tests.jax.processes.training_script import TRAINING

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def apart(address: str) -> Iterator[Group]:
    """Processes on two hosts."""
    with Group(2, devices=2, DISTXLA_ADDRESS=address) as group:
        yield group


def test_devices_of_both_hosts_compute_together(apart: Group) -> None:
    assert apart.printed(
        """
        print(jax.process_count(), [d.process_index for d in jax.devices()])
        require_right_total()
        print(here(mapped(lambda v: v * 2, out=P("d"))(sharded(np.arange(4.0)))))
        print(multihost_utils.process_allgather(np.float32(PROCESS)).tolist())
        """
    ) == [f"2 [0, 0, 1, 1]\n[[{4.0 * p}], [{4.0 * p + 2}]]\n[0.0, 1.0]" for p in range(2)]


def test_the_bits_of_a_training_step_are_those_of_one_process(apart: Group) -> None:
    with Group(1, devices=4) as group:
        assert set(apart.printed(TRAINING)) == set(group.printed(TRAINING))


def test_functions_run_in_the_process_that_has_the_device(apart: Group) -> None:
    assert apart.printed(
        """
        seen = []
        def noted(v):
            seen.append(float(v[0]))
            return v + 10
        def called(v):
            return jax.pure_callback(noted, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        print(here(mapped(called, out=P("d"))(sharded(np.arange(4.0)))), sorted(seen))
        """
    ) == ["[[10.0], [11.0]] [0.0, 1.0]", "[[12.0], [13.0]] [2.0, 3.0]"]


def test_another_constant_is_told_to_both_which_go_on(apart: Group) -> None:
    for text in apart.printed(
        """
        print(caught(lambda: here(mapped(lambda v: jax.lax.psum(v * (2.0 + PROCESS), "d"))(sharded(np.arange(4.0))))))
        require_right_total()
        """
    ):
        assert "mismatch: processes disagree in call" in text
        assert "process 0 has {2}, process 1 has {3}" in text


def test_a_function_that_raises_is_told_to_both(apart: Group) -> None:
    for text in apart.printed(
        """
        def failing(v):
            if PROCESS == 1:
                raise ValueError("of process 1")
            return v
        def called(v):
            found = jax.pure_callback(failing, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
            return jax.lax.psum(found, "d")
        print(caught(lambda: here(mapped(called)(sharded(np.arange(4.0))))))
        caught(jax.effects_barrier)  # which tells it once more, here or at the end
        require_right_total()
        """
    ):
        assert "ValueError: of process 1" in text
