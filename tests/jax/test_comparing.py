"""`distxla.jax.compare`: functions and what JAX has lowered, with and without an unsharded form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

import distxla.jax as dxj
from distxla.errors import ArgumentError
from tests.jax.programs import P, mesh, numbers

HERE = Path(__file__).name
X, W = numbers(8, 16), numbers(16, 4)
KEYS = {"instruction", "op_name", "source", "iteration", "devices", "sharded", "unsharded", "kind", "hint", "use"}


def plain(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def reduced(x: Any, w: Any) -> Any:
    return jnp.tanh(lax.psum(x @ w, "x"))


def not_reduced(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)  # the line that is named


def on(devices: int, function: Any) -> Any:
    specs = {"in_specs": (P(None, "x"), P("x")), "out_specs": P()}
    return jax.shard_map(function, mesh=mesh(devices), **specs, check_vma=False)


def automatic(function: Any = plain) -> Any:
    on_mesh = mesh(2, 4)
    return jax.jit(function, in_shardings=(NamedSharding(on_mesh, P("x", "y")), NamedSharding(on_mesh, P("y"))))


def line_of(text: str) -> int:
    return next(k for k, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize("twin", [plain, on(1, reduced), jax.jit(plain)], ids=["plain", "one device", "jit"])
def test_the_same_by_proof(twin: Any) -> None:
    found = dxj.compare(on(4, reduced), twin, X, W)
    assert (found.same, found.first, found.results, found.compared) == (True, None, (), False)
    assert {each.relation for each in found.relations} >= {"partial sums over 'x'", "the same"}
    proof = "1 result is equal for all inputs, up to the order of sums and the rounding of constant factors"
    assert str(found) == f"the same: {proof}; proved, nothing was run"


def test_relations_are_those_of_a_run() -> None:
    proved, run = (dxj.compare(automatic(), None, X, W, proof=proof).relations for proof in (True, False))
    assert proved == run


@pytest.mark.parametrize("twin", [plain, on(1, reduced), jax.jit(plain)], ids=["plain", "one device", "jit"])
def test_the_same(twin: Any) -> None:
    found = dxj.compare(on(4, reduced), twin, X, W, proof=False)
    assert found.same, found
    assert found.proof is None
    assert found.first is None
    assert found.results == ()
    assert {each.relation for each in found.relations} >= {"partial sums over 'x'", "the same"}
    assert str(found) == f"the same: {len(found.relations)} instructions compared"


def test_a_difference() -> None:
    found = dxj.compare(on(4, not_reduced), plain, X, W)
    assert not found.same
    first = found.first
    assert first is not None
    assert re.fullmatch(rf".*{HERE}:{line_of('# the line that is named')}", first.source or "")
    assert first.kind == "not reduced"
    assert first.op_name.endswith("dot_general")
    assert first.devices == (0, 1, 2, 3)
    assert "a psum over 'x' is missing" in first.hint
    assert first.use is not None
    assert set(first.as_json()) == KEYS | {"use_source"}
    assert found.as_json()["first"] == first.as_json()
    assert first.hint in str(found)


def test_what_jax_has_lowered() -> None:
    sharded = jax.jit(on(4, not_reduced)).trace(X, W).lower(lowering_platforms=("cpu",))
    whole = jax.jit(plain).trace(X, W).lower(lowering_platforms=("cpu",))
    found = dxj.compare(sharded, whole, X, W)
    assert found.first is not None
    assert found.first.kind == "not reduced"
    assert dxj.compare(whole, whole, X, W).same


def test_automatic_shardings_without_another_form() -> None:
    found = dxj.compare(automatic(), None, X, W)
    assert found.same, found
    assert "partial sums over 'y', each a shard: dimension 0 over 'x'" in {each.relation for each in found.relations}


def test_a_shard_map_needs_another_form() -> None:
    with pytest.raises(ArgumentError, match=r"the program has a shard_map.*: name the unsharded function"):
        dxj.compare(on(4, reduced), None, X, W)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn])
def test_rounding_is_no_difference(dtype: Any) -> None:
    random = np.random.default_rng(0)
    x, w = (random.normal(size=shape).astype(dtype) for shape in ((8, 64), (64, 16)))
    found = dxj.compare(on(8, reduced), plain, x, w)
    assert found.same, found
    assert not dxj.compare(on(8, not_reduced), plain, x, w).same


def test_the_tolerance_replaces_what_is_measured() -> None:
    def near(x: Any, w: Any) -> Any:
        return plain(x, w) * 1.001

    assert not dxj.compare(automatic(near), plain, X, W).same
    assert not dxj.compare(automatic(near), plain, X, W, tolerance=1e-4).same
    assert dxj.compare(automatic(near), plain, X, W, tolerance=1e-2).same


def test_values_in_a_file() -> None:
    in_memory, in_file = (dxj.compare(on(4, not_reduced), plain, X, W, memory=memory) for memory in (1 << 30, 256))
    assert in_file == in_memory
    assert in_file.relations == in_memory.relations


def test_the_iteration_of_a_loop() -> None:
    def steps(x: Any, is_right: bool) -> Any:
        def body(carry: Any, k: Any) -> Any:
            total, x = carry
            part = jnp.sum(x * (k + 1))
            whole = lax.psum(part, "x")
            total = whole if is_right else jnp.where(k < 2, whole, part)
            return (total, x + total / 8), None

        return lax.scan(body, (jnp.float32(0), x), jnp.arange(4, dtype=jnp.float32))[0][1]

    def sharded(devices: int, is_right: bool) -> Any:
        run = lambda x: steps(x, is_right)  # noqa: E731
        return jax.shard_map(run, mesh=mesh(devices), in_specs=P("x"), out_specs=P("x"), check_vma=False)

    x = numbers(16)
    assert dxj.compare(sharded(4, True), sharded(1, True), x).same
    found = dxj.compare(sharded(4, False), sharded(1, True), x)
    assert found.first is not None
    assert found.first.iteration == 2


def test_pytrees() -> None:
    def step(params: Any, x: Any) -> Any:
        return {"loss": jnp.mean(x @ params["w"] + params["b"]), "params": params}

    def sharded(params: Any, x: Any) -> Any:
        found = step(params, x)
        return {**found, "loss": lax.pmean(found["loss"], "x")}

    specs = {"in_specs": (P(), P("x")), "out_specs": P()}
    params = {"w": W, "b": numbers(4)}
    run = jax.shard_map(sharded, mesh=mesh(4), **specs, check_vma=False)
    assert dxj.compare(run, step, params, X).same
    wrong = jax.shard_map(step, mesh=mesh(4), **specs, check_vma=False)
    assert str(dxj.compare(wrong, step, params, X)).startswith("out0 (['loss']) differs on 4 of 4 devices\n")


def test_results_of_another_structure() -> None:
    with pytest.raises(ArgumentError, match=r"expected results of one structure, found 1 arrays of .* and 2 of "):
        dxj.compare(on(4, reduced), lambda x, w: (plain(x, w), w), X, W)


def test_results_of_another_shape() -> None:
    found = dxj.compare(on(4, reduced), lambda x, w: plain(x, w)[:4], X, W)
    assert not found.same
    assert found.results == ("out0: expected [4, 4] as in the unsharded, found [8, 4]",)


def test_arguments_that_do_not_fit() -> None:
    lowered = jax.jit(on(4, reduced)).trace(X, W).lower(lowering_platforms=("cpu",))
    with pytest.raises(ArgumentError, match="expected 2 arrays, found 1"):
        dxj.compare(lowered, lowered, X)
    with pytest.raises(ArgumentError, match=r"args\[1\]: expected float32\[16,4\], found float32\[8,4\]"):
        dxj.compare(lowered, lowered, X, W[:8])
    with pytest.raises(ArgumentError, match=r"compare takes functions and jax\.stages\.Lowered, found int"):
        dxj.compare(1, plain, X, W)  # type: ignore[arg-type]


def test_ordered_effects_are_refused() -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x, ordered=True)
        return x

    with pytest.raises(ArgumentError, match="has ordered effects, which are not compared"):
        dxj.compare(printing, lambda x: x, X)
