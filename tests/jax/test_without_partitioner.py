"""Modules for one partition are lowered without XLA's partitioner, and come out as it leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from distxla.errors import PartitioningError
from distxla.jax.partitioner import partitioning
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.partitioner.partitioning import Partitioned, partition_module
from distxla.jax.private.names import private, proto_of_stablehlo, stablehlo_of_lowered
from tests.jax.programs import P, assert_as_jax, lowered, mesh

X = np.linspace(0, 1, 48, dtype=np.float32).reshape(6, 8)
SQUARE = np.eye(4, dtype=np.float32) * 2 + 1
TABLE = np.arange(3000, dtype=np.float32)

SAME: dict[str, tuple[Callable[..., Any], Any]] = {
    "elementwise": (lambda x: jnp.tanh(x) * 2, X),
    "dot": (lambda x: x @ x.T, X),
    "sort": (lambda x: jnp.sort(x, axis=1)[:, ::-1], X),
    "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda _, y: y * 0.5 + 1, x), X),
    "branches": (lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X),
    "scan": (lambda x: jax.lax.scan(lambda c, a: (c + a, c * a), x[0], x), X),
    "several results": (lambda x: (x, (x + 1, x.sum())), X),
    "no results": (lambda x: None, X),
    "layout of the root": (jnp.linalg.solve, (SQUARE, SQUARE)),
    "custom-call": (jnp.linalg.eigh, SQUARE),
    "empty": (lambda x: x[:0] @ x.T, X),
    "large constant": (lambda x: x[0, 0] + TABLE, X),
    "small types": (lambda x: x.astype(jnp.int4) + 1, X),
    "negative zero": (lambda x: x * -0.0, X),
}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitioner is not to be asked."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the partitioner was asked")

    monkeypatch.setattr(SERVER, "partition", refuse)


def module_of(f: Callable[..., Any], arguments: Any, **options: Any) -> bytes:
    given = arguments if isinstance(arguments, tuple) else (arguments,)
    return stablehlo_of_lowered(jax.jit(f, **options).lower(*given))


def direct(module: bytes, **options: Any) -> Partitioned:
    return partition_module(module, partitions=1, calls_python=True, **options)


@pytest.mark.parametrize("donated", [(), (0,)], ids=["kept", "donated"])
@pytest.mark.parametrize("name", SAME)
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_the_module_is_the_partitioners(
    name: str, donated: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, arguments = SAME[name]
    module = module_of(f, arguments, donate_argnums=donated)
    by_xla = partition_module(module, partitions=1)
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path / "another"))
    monkeypatch.setattr(SERVER, "partition", None)
    found = direct(module)
    assert replace(found, proto=b"") == replace(by_xla, proto=b"")
    assert found.text == by_xla.text


@pytest.mark.usefixtures("refuses")
@pytest.mark.parametrize(
    "f", [lambda key: jax.random.normal(key, (7,)), lambda key: jax.random.key_data(jax.random.split(key))]
)
def test_annotations_are_identities(f: Callable[..., Any]) -> None:
    key = jax.random.key(3)
    found = direct(module_of(f, key))
    assert found.parameter_shardings == found.output_shardings == ("{replicated}",)
    assert 'custom_call_target="Sharding"' in found.text
    assert_as_jax(lambda data: f(jax.random.wrap_key_data(data)), found, (np.asarray(jax.random.key_data(key)),))


@pytest.mark.usefixtures("refuses")
def test_a_manual_region_of_one_device_is_its_body() -> None:
    def f(x: Any) -> Any:
        return jax.shard_map(lambda x: jax.lax.psum(x * 2, "x"), mesh=mesh(1), in_specs=P("x"), out_specs=P())(x)

    found = direct(stablehlo_of_lowered(lowered(f, mesh(1), (X,), (P("x"),))))
    assert "all-reduce" in found.text
    assert_as_jax(lambda x: x * 2, found, (X,))


@pytest.mark.usefixtures("refuses")
def test_options_do_not_ask_for_the_partitioner() -> None:
    options = private("CompileOptions")()
    options.num_replicas = 2
    found = direct(module_of(jnp.sin, X), replicas=2, compile_options=bytes(options.SerializeAsString()))
    assert (found.replicas, found.partitions) == (2, 1)
    assert "replica_count=2" in found.text


def test_the_partitioner_is_asked_where_layouts_are_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    module = jax.jit(jnp.sin).lower(X).as_text()
    stated = module.replace("%arg0: tensor<6x8xf32>", '%arg0: tensor<6x8xf32> {mhlo.layout_mode = "{0,1}"}', 1)
    asked = []
    partition = SERVER.partition
    monkeypatch.setattr(SERVER, "partition", lambda *given: asked.append(given) or partition(*given))
    assert direct(stated.encode()).parameter_shapes == ("f32[6,8]{0,1}",)
    assert len(asked) == 1


@pytest.mark.usefixtures("refuses")
def test_shardings_over_one_device_need_no_partitioner() -> None:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("x",)), P("x"))
    module = module_of(lambda x: x * 2, X, in_shardings=sharding, out_shardings=sharding)
    assert_as_jax(lambda x: x * 2, direct(module), (X,))


def test_hlo_goes_to_the_partitioner() -> None:
    proto = proto_of_stablehlo(module_of(jnp.sin, X))
    assert_as_jax(jnp.sin, direct(proto), (X,))


@pytest.mark.parametrize("first", [False, True])
def test_the_text_does_not_depend_on_what_the_cache_has(first: bool) -> None:
    module = module_of(lambda key: jax.random.normal(key, (7,)), jax.random.key(3))
    if first:
        partition_module(module, partitions=1)
    assert 'custom_call_target="Sharding"' in direct(module).text


def test_what_a_signal_handler_raises_is_not_xlas(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alarm(Exception):
        pass

    def convert(*_: Any) -> None:
        raise Alarm

    monkeypatch.setattr(partitioning, "stablehlo_converter", lambda: convert)
    with pytest.raises(Alarm):
        direct(module_of(jnp.sin, X))


def test_flags_of_xla_are_xlas_to_check() -> None:
    options = private("CompileOptions")()
    options.env_option_overrides = [("xla_no_such_option", "1")]
    with pytest.raises(PartitioningError, match="No such compile option: 'xla_no_such_option'"):
        direct(module_of(jnp.sin, X), compile_options=bytes(options.SerializeAsString()))


def test_xlas_refusal_is_told() -> None:
    module = jax.jit(jnp.sin).lower(X).as_text().replace("stablehlo.sine", "stablehlo.no_such_operation")
    with pytest.raises(PartitioningError, match=r"XLA refuses the module: .*no_such_operation"):
        direct(module.encode())


def test_work_begins_where_the_cache_has_nothing() -> None:
    begun: list[str] = []
    for _ in range(2):
        direct(module_of(jnp.sin, X), begin=lambda: begun.append("begun"))
    assert begun == ["begun"]
