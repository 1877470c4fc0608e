"""The measured JAX programs compute what they say, on distxla as in the reference."""

from __future__ import annotations

import io
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from rich.console import Console

import distxla as dx
import distxla.jax as dxj
from bench.jax_calls import COUNTS, NAMES, MeasuredCall, jax_call_table
from bench.jax_programs import PROGRAMS, options


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(partitions=2) as found:
        yield found


@pytest.mark.cluster
@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_the_reference_gives(cluster: dx.Cluster, name: str) -> None:
    mesh = dxj.make_mesh((2,), ("i",))
    program = PROGRAMS[name](mesh)
    step = dxj.jit(program.function, cluster=cluster, **options(program, mesh))
    want = step.compile(program.state, program.batch).reference(program.state, program.batch)
    got = step(program.state, program.batch)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


def test_the_table_shows_medians_and_ratios() -> None:
    waited = {"dxj": [1e-4, 3e-4, 2e-4], "plugin": [5e-4], "xla": [4e-4]}
    in_a_row = {"dxj": [1e-4], "plugin": [1e-4], "xla": [1e-4]}
    rows = [MeasuredCall(name, devices, waited, in_a_row) for name in NAMES for devices in COUNTS]
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(jax_call_table(rows))
    text = console.export_text()
    assert "200 µs" in text
    assert "0.50" in text
    assert "1.25" in text
    assert text.count("geometric mean") == len(COUNTS)
    assert set(NAMES) == set(PROGRAMS)
