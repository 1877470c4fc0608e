"""JAX's programs on the plugin's devices give what NumPy gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

import distxla as dx
from distxla.jax.pjrt.client import Settings, settings_of_environment
from tests.jax.pjrt.scripts import ROOT, printed, run
from tests.jax.pjrt.served import Served

pytestmark = pytest.mark.cluster

# what device_put within a jitted function gives, as of XLA's CPUs: JAX names no unpinned memory in the module
MEMORIES = {"device": "device", "pinned_host": "pinned_host", "unpinned_host": "device"}
BODY = """
import gc, json, warnings
warnings.simplefilter("error")
found = {}
devices = jax.devices()
mesh = Mesh(np.array(devices), ("i",))
x = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
xs = jax.device_put(x, NamedSharding(mesh, P("i")))
found["devices"] = [len(devices), devices[1].id, devices[1].platform, jax.process_count()]
found["shards"] = [list(s.data.shape) for s in xs.addressable_shards]
found["read"] = bool((np.asarray(xs) == x).all())

f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(jnp.tanh(x).sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
found["psum"] = float(f(xs) - np.tanh(x).sum())
g = jax.jit(lambda x: (x @ x.T).sum(0), out_shardings=NamedSharding(mesh, P("i")))
found["automatic"] = float(abs(np.asarray(g(xs)) - (x @ x.T).sum(0)).max())
w = np.full((8, 2), 0.1, np.float32)
found["grad"] = float(abs(np.asarray(jax.grad(lambda w: (xs @ w).sum())(w)) - x.sum(0)[:, None]).max())
given = jax.device_put(x, NamedSharding(mesh, P("i")))
plus = jax.jit(lambda x: x + 1, donate_argnums=0)(given)
found["donated"] = [bool((np.asarray(plus) == x + 1).all()), given.is_deleted()]
update = jax.jit(lambda x, k: jax.lax.dynamic_update_slice(x, k + jnp.zeros((8, 1)), (0, 1)), donate_argnums=0)
for name, keeps in (("in place", False), ("a view keeps its memory", True)):
    given = jax.device_put(x, NamedSharding(mesh, P("i")))
    places = [shard.data.unsafe_buffer_pointer() for shard in given.addressable_shards]
    view = np.asarray(given.addressable_shards[0].data) if keeps else x[:8 // len(devices)]
    updated = update(given, jnp.float32(7))
    same = [shard.data.unsafe_buffer_pointer() for shard in updated.addressable_shards] == places
    found[name] = [same, float(np.asarray(updated)[0, 1]), bool((view == x[:8 // len(devices)]).all())]
for name, f in {
    "elementwise": lambda x: x + 1, "two results": lambda x: (x + 1, x[::-1]), "reversed": lambda x: x - x[::-1],
    "large": lambda x: x * 2,
}.items():
    value = np.arange(3 * 2**20 if name == "large" else 2000, dtype=np.float32)
    step = jax.jit(f, donate_argnums=0)
    for _ in range(3 if name == "large" else 1):
        given = jax.device_put(value, devices[0]) + 0  # large values of NumPy stay where they are
        place = given.unsafe_buffer_pointer()
        out = jax.tree.leaves(step(given))
        same = [o.unsafe_buffer_pointer() == place for o in out]
        wanted = jax.tree.leaves(f(value))
        right = all(bool((np.asarray(o) == np.asarray(w)).all()) for o, w in zip(out, wanted))
        found.setdefault(f"donated, {name}", []).append([same, right])
found["on device 1"] = (jax.device_put(x, devices[1]) * 2).devices() == {devices[1]}
found["other sharding"] = bool((np.asarray(jax.device_put(xs, NamedSharding(mesh, P(None, "i")))) == x).all())
found["cholesky"] = float(jnp.linalg.cholesky(jnp.eye(2) * 4.0)[1, 1])
for dtype in ("bfloat16", "int4", "float8_e4m3fn", "bool", "complex64"):
    value = np.ones((2, 3), dtype)
    found[dtype] = bool((np.asarray(jax.device_put(value)) == value).all())
found["empty"] = list(np.asarray(jax.device_put(np.zeros((0, 3), np.complex64))).shape)
found["backwards"] = np.asarray(jax.device_put(np.arange(4)[::-1])).tolist()

one = jax.device_put(np.arange(16.0, dtype=np.float32), devices[0])
view = np.asarray(one)
found["numpy without a copy"] = view.ctypes.data == one.unsafe_buffer_pointer()
again = jax.dlpack.from_dlpack(one)
found["dlpack without a copy"] = again.unsafe_buffer_pointer() == one.unsafe_buffer_pointer()
other = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(2, 0, 1)
found["dlpack in another order"] = [bool((jax.dlpack.from_dlpack(a) == a).all()) for a in (other, x[:, ::2].copy("F"))]
found["dlpack stays there"] = again.devices() == {devices[0]}
found["cpu"] = [jax.devices(name) == devices for name in (jax.default_backend(), "cpu", "distxla", "jax_cpu")]
(host,) = jax.devices("jax_cpu")
own = [host, *jax.device_put(one + 1, host).devices()]
found["JAX's own"] = ["distxla" in device.client.platform_version for device in own]
summed = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", backend="cpu")(np.arange(2.0, dtype=np.float32))
found["pmap"] = [summed.tolist(), summed.devices() == set(devices)]
for name, default in {"device 1": devices[1], "cpu": "cpu", "JAX's own": host}.items():
    with jax.default_device(default):
        where = jax.jit(lambda x: jnp.linalg.eigh(x)[0])(np.diag([3.0, 1.0]))
        found[f"eigh on {name}"] = [where.tolist(), [*devices, host].index(*where.devices())]
computed = []
def note(x):
    computed.extend([*x.devices(), *(x + jnp.ones(2)).devices()])
    return np.asarray(x)
def calling(x):
    y = jax.pure_callback(note, jax.ShapeDtypeStruct((2,), np.float32), x)
    jax.debug.callback(note, y)
    return jax.experimental.io_callback(note, jax.ShapeDtypeStruct((2,), np.float32), y)
jax.block_until_ready(jax.jit(calling)(jnp.ones(2)))
jax.effects_barrier()
found["callbacks compute on JAX's own"] = [len(computed), set(computed) == {host}]
one.delete()
found["view outlives the array"] = view.tolist() == list(range(16)) and float(again.sum()) == 120
cluster().queue.drain()  # what calls leave is given back once they are over
gc.collect()
cluster().heap.reclaim()
before = devices[0].memory_stats()["bytes_in_use"]
large = jax.device_put(np.zeros(1 << 20, np.uint8), devices[0])
found["memory"] = devices[0].memory_stats()["bytes_in_use"] - before
kinds = [[memory.kind for memory in d.addressable_memories()] for d in (*devices, host)]
found["memory kinds"] = [len(set(map(tuple, kinds))), *kinds[0], devices[1].default_memory().kind]
for name in kinds[0]:
    sharding = NamedSharding(mesh, P("i"), memory_kind=name)
    there = jax.device_put(x, sharding)
    made = jax.jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding)
    within = jax.jit(lambda x: jax.device_put(2 * x, sharding))
    results = [there, *(made(there) for _ in range(3)), within(x)]  # the last of made are native
    found[f"in {name}"] = [each.sharding.memory_kind for each in results]
    pairs = (results[3], x + 1), (results[4], 2 * x)
    found[f"values in {name}"] = [bool((np.asarray(y) == z).all()) for y, z in pairs]
from jax.experimental.layout import Format, Layout, with_layout_constraint
columns = Layout((1, 0))
automatic = jax.jit(lambda x: (x.T, x.sum()), out_shardings=Format(Layout.AUTO)).lower(x).compile()
found["automatic layouts"] = [each.layout.major_to_minor for each in automatic.output_formats]
rows = NamedSharding(mesh, P("i"))
for name, f, layout in (
    ("automatic", lambda x: automatic(x)[0], None),
    ("asked", jax.jit(lambda x: x.T, out_shardings=Format(columns, rows)), columns),
    ("constrained", jax.jit(lambda x: with_layout_constraint(x, columns).T, out_shardings=rows), None),
):
    y = f(x)
    order = None if layout is None else y.format.layout.major_to_minor
    found[f"{name} layout's values"] = [bool((np.asarray(y) == x.T).all()), order and list(order)]
stats = devices[0].memory_stats()
found["memory's statistics"] = [
    stats["bytes_in_use"] <= stats["peak_bytes_in_use"] < stats["bytes_limit"] == stats["bytes_reservable_limit"],
    stats["largest_alloc_size"] >= 1 << 20,
    stats["largest_free_block_bytes"] <= stats["bytes_limit"] - stats["bytes_in_use"],
    stats["num_allocs"] > 10,
]
def multiply(a, b):
    return jnp.sin(a @ b)
operands = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)
lowered = jax.jit(multiply).lower(*operands)
compiled = lowered.compile()
theirs = jax.jit(multiply).lower(*(jax.device_put(a, host) for a in operands)).compile()
for name, analysed in {"as lowered": lowered, "as compiled": compiled, "on JAX's own": theirs}.items():
    costs = analysed.cost_analysis()
    found[f"costs {name}"] = [costs["flops"], costs["transcendentals"], costs["bytes accessed"] >= 4 * (128 + 64 + 32)]
stated = [f.lower(x, np.float32(7)).compile().memory_analysis() for f in (update, jax.jit(lambda x, k: x + k))]
found["aliases"] = [[each.output_size_in_bytes, each.alias_size_in_bytes] for each in stated]
from distxla.jax.pjrt import handles
from distxla.jax.pjrt.buffers import Buffer
count = handles.count(Buffer)
for _ in range(100):
    large = large + 1
large.block_until_ready()
found["buffers go"] = handles.count(Buffer) - count < 10  # of the last ones some may wait for JAX's next call
print("found:", json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, Any]:
    return dict(json.loads(served.printed(BODY).partition("found:")[2]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("devices", [2, 1, "cpu", 1]),
        ("shards", [[4, 8], [4, 8]]),
        ("read", True),
        ("donated", [True, True]),
        ("in place", [True, 7.0, True]),
        ("donated, elementwise", [[[True], True]]),
        ("donated, two results", [[[False, False], True]]),
        ("donated, reversed", [[[False], True]]),
        ("donated, large", [[[True], True]] * 3),
        ("a view keeps its memory", [False, 7.0, True]),
        ("on device 1", True),
        ("other sharding", True),
        ("cholesky", 2.0),
        ("bfloat16", True),
        ("int4", True),
        ("float8_e4m3fn", True),
        ("bool", True),
        ("complex64", True),
        ("empty", [0, 3]),
        ("backwards", [3, 2, 1, 0]),
        ("numpy without a copy", True),
        ("dlpack without a copy", True),
        ("view outlives the array", True),
        ("dlpack in another order", [True, True]),
        ("dlpack stays there", True),
        ("cpu", [True, True, True, False]),
        ("JAX's own", [False, False]),
        ("pmap", [[1.0, 1.0], True]),
        ("eigh on device 1", [[1.0, 3.0], 1]),
        ("eigh on cpu", [[1.0, 3.0], 0]),
        ("eigh on JAX's own", [[1.0, 3.0], 2]),
        ("callbacks compute on JAX's own", [6, True]),
        ("memory", 1 << 20),
        ("memory kinds", [1, "device", "pinned_host", "unpinned_host", "device"]),
        *((f"in {name}", [name] * 4 + [inside]) for name, inside in MEMORIES.items()),
        *((f"values in {name}", [True, True]) for name in MEMORIES),
        ("automatic layouts", [[0, 1], []]),
        ("automatic layout's values", [True, None]),
        ("asked layout's values", [True, [1, 0]]),
        ("constrained layout's values", [True, None]),
        ("memory's statistics", [True] * 4),
        ("costs as lowered", [2.0 * 8 * 16 * 4, 32.0, True]),
        ("costs as compiled", [2.0 * 8 * 16 * 4, 32.0, True]),
        ("costs on JAX's own", [2.0 * 8 * 16 * 4, 32.0, True]),
        ("aliases", [[256, 256], [256, 0]]),
        ("buffers go", True),
    ],
)
def test_exact(found: dict[str, Any], name: str, expected: object) -> None:
    assert found[name] == expected


@pytest.mark.parametrize("name", ["psum", "automatic", "grad"])
def test_near(found: dict[str, Any], name: str) -> None:
    assert abs(found[name]) < 1e-5


@pytest.mark.exhaustive
@pytest.mark.slow
def test_by_the_entry_point(tmp_path: Path) -> None:
    """JAX finds the plugin by its entry point, and takes it only where the platform is asked for."""
    package = tmp_path / "distxla_there.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: distxla-there\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[jax_plugins]\ndistxla = distxla.jax.pjrt\n")
    assert '[project.entry-points.jax_plugins]\ndistxla = "distxla.jax.pjrt"' in (ROOT / "pyproject.toml").read_text()
    paths = f"{ROOT}:{tmp_path}"
    body = "print(jax.devices())"
    there = printed(body, devices=None, PYTHONPATH=paths, JAX_PLATFORMS="distxla", DISTXLA_DEVICES="3")
    assert there == "[distxla:0, distxla:1, distxla:2]\n"
    assert "distxla:" not in printed(body, devices=None, PYTHONPATH=paths, JAX_PLATFORMS="cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no devices", "argument: a cluster needs at least one device"),
        ("bad memory", "argument: device_memory: expected a number of bytes"),
        ("bad backend", "argument: backend 'tpu': a cluster's replicas run on"),
        ("other versions", "distxla's plugin is tested with 1.0 to 1.1"),
        ("late", "jax: JAX has its devices already"),
    ],
)
def test_bad_installs(served: Served, name: str, message: str) -> None:
    served.start()
    assert message in served.bad_installs[name]


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        ({}, 8),
        ({"JAX_NUM_CPU_DEVICES": "-1"}, 8),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
        ({"DISTXLA_DEVICES": "2", "JAX_NUM_CPU_DEVICES": "3"}, 2),
    ],
)
def test_counts_in_the_environment(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], devices: int) -> None:
    for name in ("DISTXLA_DEVICES", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS"):
        monkeypatch.setenv(name, given.get(name, ""))
    assert settings_of_environment().devices == devices


def test_other_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("DISTXLA_ADDRESS", "DISTXLA_DEVICE_MEMORY", "DISTXLA_BACKEND")
    monkeypatch.setenv("DISTXLA_DEVICES", "2")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert settings_of_environment() == Settings(2, None, None, "cpu")
    for name, value in zip(names, ("here:1", "2GiB", "gpu"), strict=True):
        monkeypatch.setenv(name, value)
    assert settings_of_environment() == Settings(2, "here:1", "2GiB", "gpu")


def test_platforms_that_lead_away_from_the_plugin() -> None:
    """One line says so, however the plugin was asked for."""
    body = """
        import jax.extend.backend
        jax.config.update("jax_platforms", "cpu")
        print(["distxla" in d.client.platform_version for d in (*jax.devices(), *jax.devices("cpu"))])
        jax.extend.backend.clear_backends()
        distxla.jax.install()
        for _ in range(2):
            jax.config.update("jax_platforms", "cpu")
            print(["distxla" in d.client.platform_version for d in (*jax.devices(), *jax.devices("cpu"))])
            jax.extend.backend.clear_backends()
    """
    done = run(body, devices=None, JAX_PLATFORMS="distxla", JAX_NUM_CPU_DEVICES="1")
    assert (done.returncode, done.stdout) == (0, "[False, False]\n" * 3), done.stderr
    begin = "distxla: jax_platforms is 'cpu', although "
    assert [line for line in done.stderr.splitlines() if line.startswith(begin)] == [
        f"{begin}{asked} asked for distxla's devices" for asked in ("JAX_PLATFORMS", "distxla.jax.install")
    ]


ON_GPUS = """
mesh = Mesh(np.array(jax.devices()), "i")
x = jax.device_put(np.linspace(-1, 1, 8 * 6, dtype=np.float32).reshape(8, 6), NamedSharding(mesh, P("i")))
w = np.linspace(0, 1, 6 * 5, dtype=np.float32).reshape(6, 5)
f = jax.jit(lambda w, x: jnp.tanh(x @ w).sum(0))
for _ in range(4):
    y = f(w, x)
assert np.allclose(y, np.tanh(np.asarray(x) @ w).sum(0), rtol=1e-5)
step = jax.jit(lambda w, x: w - jax.grad(lambda w: (x @ w).mean())(w), donate_argnums=0)
v = jnp.asarray(w)
for _ in range(3):
    v = step(v, x)
assert np.allclose(v, w - 3 * np.asarray(x).sum(0)[:, None] / 40, rtol=1e-5, atol=1e-6)
print(jax.devices()[0].platform, len(jax.devices()))
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_kernels_on_gpus() -> None:
    assert (
        printed(
            ON_GPUS,
            devices=None,
            JAX_PLATFORMS="distxla",
            DISTXLA_DEVICES="2",
            DISTXLA_BACKEND="gpu",
            DISTXLA_GPU_DRIVER="emulated:2",
        )
        == "cpu 2\n"
    )


@pytest.mark.parametrize(("name", "value"), [("DISTXLA_DEVICES", "some"), ("JAX_NUM_CPU_DEVICES", "-12")])
def test_bad_counts_in_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("DISTXLA_DEVICES", "")
    monkeypatch.setenv(name, value)
    with pytest.raises(dx.ArgumentError, match=f"{name}: expected a number of devices, found '{value}'"):
        settings_of_environment()
