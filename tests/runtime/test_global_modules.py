"""Global modules on a cluster: whole arrays in, shards or whole arrays out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import distxla as dx
from distxla.cli.main import commands
from distxla.testing import ClusterPool
from tests.global_modules import ARGUMENTS, GSPMD, PARTITIONS, SHARDY, expected, shards_of_a
from tests.programs import PROGRAMS, ShardedProgram

pytestmark = pytest.mark.cluster
each_form = pytest.mark.parametrize("text", [SHARDY, GSPMD], ids=["shardy", "gspmd"])


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(partitions=PARTITIONS) as opened:
        yield opened


@each_form
def test_whole_arguments_are_split_and_results_joined(cluster: dx.Cluster, text: str) -> None:
    step = cluster.compile(dx.parse(text))
    outs = step(ARGUMENTS)
    whole = expected()
    assert all(np.array_equal(found, want) for found, want in zip(step.join(outs), whole, strict=True))
    for row, shard in zip(outs, shards_of_a(whole[0]), strict=True):
        assert np.array_equal(np.asarray(row[0]), shard)
    again = step([[*row[:2], np.float32(0)] for row in outs])  # shards that stayed on their devices
    assert np.array_equal(step.join(again)[0], whole[0] + whole[0].sum())


def test_shards_may_be_given_too(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(SHARDY))
    _, b, c = ARGUMENTS
    rows = [[shard, b, c] for shard in shards_of_a(ARGUMENTS[0])]
    assert np.array_equal(step.join(step(rows))[0], expected()[0])


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_programs_of_jax_before_they_are_partitioned(cluster: dx.Cluster, program: ShardedProgram) -> None:
    program.assert_results(cluster.compile(dx.parse(program.text("global")))(program.arguments))


def rows_of_a_global_array() -> dx.Module:
    b = dx.XlaBuilder("b", num_partitions=PARTITIONS)
    with b.sharding("{devices=[8]<=[8]}"):
        x = b.parameter(0, "f32[8]")
    return b.build(x + x)


def test_a_module_without_a_manual_region_is_refused_without_jaxlib_and_one_that_is_partitioned_is_not(
    cluster: dx.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(dx.UnsupportedOpError, match=r"is cut into tiles, .*It needs an SPMD partitioner") as caught:
        cluster.compile(rows_of_a_global_array())
    assert Path(caught.value.location.file).name == "test_global_modules.py"  # type: ignore[union-attr]
    done = "ENTRY e_spmd { x = f32[1] parameter(0), sharding={devices=[8]<=[8]}\n ROOT y = f32[1] add(x, x) }"
    rows = [[np.float32([d])] for d in range(PARTITIONS)]
    assert [np.asarray(row[0]).item() for row in cluster.compile(dx.parse(done))(rows)] == [2 * d for d in range(8)]


def test_xlas_partitioner_makes_the_program_of_each_partition(
    cluster: dx.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("jaxlib")
    step = cluster.compile(rows_of_a_global_array())
    x = np.arange(8, dtype=np.float32)
    outs = step([x])
    assert [np.asarray(row[0]).tolist() for row in outs] == [[2.0 * d] for d in range(PARTITIONS)]
    assert np.array_equal(step.join(outs)[0], 2 * x)
    assert "distxla: b: partitioned for 8 partitions by XLA's partitioner (jaxlib " in caplog.text


def test_one_partition_that_somebody_asked_for_runs_it_whole() -> None:
    with dx.Cluster(partitions=1) as one:
        step = one.compile(
            dx.parse("ENTRY e { x = f32[8] parameter(0), sharding={devices=[8]<=[8]}\n ROOT y = f32[8] add(x, x) }")
        )
        assert np.array_equal(np.asarray(step([np.ones(8, np.float32)])[0][0]), np.full(8, 2, np.float32))


def test_arguments_of_other_sizes_and_joining_what_is_not_global(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(SHARDY))
    with pytest.raises(dx.ArgumentError, match=r"argument 0 on device 0: expected f32\[2,2\], found f32\[4,4\]"):
        step([np.zeros((4, 4), np.float32), *ARGUMENTS[1:]])
    plain = cluster.compile(dx.parse("ENTRY e { ROOT x = f32[2] parameter(0) }"))
    with pytest.raises(dx.ArgumentError, match="is no global module"):
        plain.join(plain([np.zeros(2, np.float32)]))


def test_a_cluster_of_another_size_is_refused() -> None:
    with dx.Cluster(partitions=2) as small, pytest.raises(dx.UnsupportedOpError, match="where there are 2 partitions"):
        small.compile(dx.parse(SHARDY))


@pytest.mark.sampled(one_in=2)
@each_form
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_command_takes_and_gives_whole_arrays(text: str, backend: str, tmp_path: Path) -> None:
    module, out = tmp_path / "global.hlo", tmp_path / "out.npz"
    module.write_text(text)
    np.savez(tmp_path / "args.npz", **{f"arg{k}": a for k, a in enumerate(ARGUMENTS)})
    np.savez(tmp_path / "expected.npz", **{f"out{k}": a for k, a in enumerate(expected())})
    options = ["--args", str(tmp_path / "args.npz"), "--expected", str(tmp_path / "expected.npz"), "--out", str(out)]
    run = CliRunner().invoke(commands, ["run", str(module), "--backend", backend, *options], standalone_mode=False)
    assert run.exception is None, run.exception
    assert run.return_value in (0, None)
    assert "within tolerance: 24 arrays, 3 leaves on 8 devices; largest" in run.output
    with np.load(out) as file:
        assert {f"out{k}" for k in range(3)} < set(file.files)
        assert np.array_equal(file["out0"], expected()[0])
        for device, shard in enumerate(shards_of_a(expected()[0])):
            assert np.array_equal(file[f"out0@{device}"], shard)


def test_generated_arguments_are_parts_of_one_array(tmp_path: Path) -> None:
    from distxla.cli.arguments import read_arguments
    from distxla.cli.programs import read_world

    module = tmp_path / "global.hlo"
    module.write_text(SHARDY)
    world = read_world([str(module)], None, None)
    arguments = read_arguments(world, None, 0)
    assert world.counts.partitions == PARTITIONS
    assert np.array_equal(arguments.by_device[0][2], arguments.by_device[5][2])
    assert np.array_equal(arguments.by_device[0][1], arguments.by_device[4][1])
    assert not np.array_equal(arguments.by_device[0][1], arguments.by_device[1][1])
