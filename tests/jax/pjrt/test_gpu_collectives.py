"""`psend`, `precv` and `pbroadcast` through the plugin, and their refusal by JAX's own CPU in the same process."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster

SCRIPTS = {
    "values": """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
mesh = Mesh(np.array(jax.devices()), ("i",))

def jitted(f, over=mesh):
    return jax.jit(jax.shard_map(f, mesh=over, in_specs=P("i"), out_specs=P("i"), check_vma=False))

def sent(x):
    token = jax.lax.psend(x, "i", [(0, 1)])
    return jax.lax.precv(token, jax.ShapeDtypeStruct(x.shape, x.dtype), "i", [(0, 1)]) + 10 * jax.lax.psum(x, "i")

def spread(x):
    return jax.lax.pbroadcast(x, "i", 1)

x = np.arange(1, 5, dtype=np.float32)
print(jitted(sent)(x).tolist(), jitted(spread)(x).tolist())
""",
    "deadlock": """
def received_first(x):
    got = jax.lax.precv(jax.lax.create_token(), jax.ShapeDtypeStruct(x.shape, x.dtype), "i", [(0, 1), (1, 0)])
    jax.lax.psend(got, "i", [(0, 1), (1, 0)])
    return got

try:
    jax.block_until_ready(jitted(received_first)(x))
except jax.errors.JaxRuntimeError as error:
    print(str(error).split(":")[0], "deadlock: device 0 waits" in str(error), "cycle: 0 -> 1 -> 0" in str(error))
print(jitted(spread)(x).tolist())
try:
    jax.effects_barrier()  # which tells the failure of an effect once more
except jax.errors.JaxRuntimeError:
    print("told")
""",
    "refused": """
own = Mesh(np.array(jax.devices("jax_cpu")[:1]), ("i",))
for f in sent, spread:
    try:
        jitted(f, own)(jax.device_put(x, NamedSharding(own, P("i"))))
    except NotImplementedError as error:
        print(error)
""",
}


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each(SCRIPTS)


def test_values(found: dict[str, str]) -> None:
    assert found["values"] == "[40.0, 60.0, 41.0, 62.0] [3.0, 4.0, 3.0, 4.0]\n"


def test_a_deadlock_is_reported_and_the_devices_go_on(found: dict[str, str]) -> None:
    assert found["deadlock"] == "FAILED_PRECONDITION True True\n[3.0, 4.0, 3.0, 4.0]\ntold\n"


def test_jaxs_own_cpu_refuses_them(found: dict[str, str]) -> None:
    assert found["refused"].splitlines() == [
        "psend is currently only implemented on GPU",
        "MLIR translation rule for primitive 'pbroadcast' not found for platform cpu",
    ]
