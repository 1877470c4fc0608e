"""What a process leaves in the cache on disk, the next one finds: nothing is partitioned or compiled twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jax.pjrt.scripts import printed

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster


def test_a_second_process_adds_nothing(tmp_path: Path) -> None:
    body = """
        from distxla.jax.pjrt import compilers
        partitioned, made = compilers.partition_module, []
        def noted(*args, **options):
            made.append(partitioned(*args, **options))
            return made[-1]
        compilers.partition_module = noted
        x = jax.device_put(np.arange(4, dtype=np.float32), NamedSharding(jax.make_mesh((2,), ("i",)), P("i")))
        y = jax.jit(lambda x: (jnp.sin(x).sum(), x[::-1]))(x)
        z = jnp.cumsum(jnp.arange(3) + 1)
        print(float(y[0]), y[1].tolist(), z.tolist())
        print(len(made), sum(one.is_cached for one in made))
    """
    runs = []
    for _ in range(2):
        values, counts = printed(body, DISTXLA_CACHE_DIR=str(tmp_path)).splitlines()
        files = sorted(file.relative_to(tmp_path) for file in tmp_path.rglob("*") if file.is_file())
        runs.append((values, *map(int, counts.split()), files))
    (values, first, none, files), (again, second, cached, same) = runs
    assert values == again
    assert (first, none, files) == (second, 0, same)
    assert cached == second > 2
