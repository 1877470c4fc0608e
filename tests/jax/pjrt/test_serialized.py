"""Executables as bytes: JAX serialises them, loads them for other devices, and keeps them in its compilation cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.errors import ArgumentError
from tests.jax.pjrt.scripts import printed
from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

from distxla.jax.pjrt.serialized import deserialized

pytestmark = pytest.mark.cluster


def test_an_executable_is_loaded_again(served: Served) -> None:
    out = served.printed("""
        from jax.experimental import serialize_executable
        mesh = Mesh(np.array(jax.devices()), ("i",))
        sharding = NamedSharding(mesh, P("i"))
        x = jax.device_put(np.arange(4, dtype=np.float32), sharding)
        f = jax.jit(lambda x: (x + x.sum(), x * 2), donate_argnums=0, out_shardings=sharding)
        bytes_, ins, outs = serialize_executable.serialize(f.lower(x).compile())
        again = serialize_executable.deserialize_and_load(bytes_, ins, outs)
        print([np.asarray(y).tolist() for y in again(x)], x.is_deleted())
        calls = jax.jit(lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), np.float32), x))
        try:
            serialize_executable.serialize(calls.lower(1.0).compile())
        except jax.errors.JaxRuntimeError as error:
            print(error)
    """)
    first, error = out.splitlines()
    assert first == "[[6.0, 7.0, 8.0, 9.0], [0.0, 2.0, 4.0, 6.0]] True"
    assert "calls functions of this process, which cannot be serialised" in error


@pytest.mark.parametrize("data", [b"", b"something", b"distxla executable 2\n{}\n", b"distxla executable 2\n[1]\n"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ArgumentError, match="no executable that this version of distxla has serialised"):
        deserialized(None, data, b"")  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_the_compilation_cache(tmp_path: Path) -> None:
    body = f"""
        import jax.monitoring, warnings
        warnings.simplefilter("error")
        hits = []
        def heard(name, **_):
            if name.endswith("cache_hits"):
                hits.append(name)
        jax.monitoring.register_event_listener(heard)
        jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        print(jax.jit(lambda x: jnp.flip(x) * 3)(np.arange(3)).tolist(), len(hits))
    """
    assert [printed(body), printed(body)] == ["[6, 3, 0] 0\n", "[6, 3, 0] 1\n"]
