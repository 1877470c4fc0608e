"""Functions of Python that XLA's partitioner calls: they are this process's, so the partitioner runs here."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster

SCRIPTS = {
    "inspected": """
from jax.experimental.custom_partitioning import custom_partitioning
mesh = Mesh(np.array(jax.devices()), ("i",))
x = np.arange(8, dtype=np.float32)
xs = jax.device_put(x, NamedSharding(mesh, P("i")))
seen = []

for _ in range(2):
    @jax.jit
    def doubled(x):
        x = x * 2
        jax.debug.inspect_array_sharding(x, callback=lambda sharding: seen.append(sharding.spec))
        return x
    print(np.array_equal(doubled(xs), 2 * x), seen)
""",
    "custom": """
seen.clear()

def made(partition):
    @custom_partitioning
    def reverse(x):
        return x[::-1]
    reverse.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=partition,
        sharding_rule="i -> i",
    )
    return jax.jit(reverse)

def each_part(mesh, args, result):
    seen.append(args[0].shape)
    return mesh, lambda x: x[::-1], args[0].sharding, (args[0].sharding,)

def fails(mesh, args, result):
    raise ValueError("mine")

print(np.asarray(made(each_part)(xs)).tolist(), seen)
try:
    made(fails)(xs)
except jax.errors.JaxRuntimeError as error:
    print("ValueError: mine" in str(error))
""",
}


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each(SCRIPTS)


def test_shardings_are_inspected_each_time(found: dict[str, str]) -> None:
    """A module that was kept on disk would call nothing."""
    assert found["inspected"] == "True [P('i',)]\nTrue [P('i',), P('i',)]\n"


def test_custom_partitioning(found: dict[str, str]) -> None:
    """What the function gives for each part is run; what it raises is the error."""
    assert found["custom"] == "[3.0, 2.0, 1.0, 0.0, 7.0, 6.0, 5.0, 4.0] [(8,)]\nTrue\n"
