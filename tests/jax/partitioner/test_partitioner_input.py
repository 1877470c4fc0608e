"""What XLA's partitioner is given of a module: the front end's own text, or HLO text that this jaxlib can read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jaxlib")

from distxla.jax.partitioner import partitioner_input as under_test
from distxla.jax.partitioner.loading import load_module
from distxla.jax.partitioner.partitioner_input import partitioner_input
from distxla.text.parser import parse_module

STABLEHLO = """module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
NAMED = """HloModule m, num_partitions=4

ENTRY main {
  x = f32[8,2] parameter(0), sharding={mesh['d'=4], [{'d'}, {}]}
  s = f32[] parameter(1), sharding={mesh['d'=4], replicated}
  y = f32[8,2] add(x, x), sharding={replicated}
  ROOT t = (f32[8,2], f32[]) tuple(y, s), sharding={{mesh['d'=4], [{'d'}, {}]}, {mesh['d'=4], replicated}}
}
"""


def shardings(text: str | bytes) -> dict[str, str]:
    """Of the instructions of the entry, by name."""
    module = parse_module(text)
    return {i.name: i.sharding.text for i in module.entry_computation if i.sharding is not None}


@pytest.fixture
def stablehlo(tmp_path: Path) -> Path:
    path = tmp_path / "m.mlir"
    path.write_text(STABLEHLO)
    return path


def test_stablehlo_is_given_as_it_was_written(stablehlo: Path) -> None:
    given = partitioner_input(load_module(stablehlo))
    assert (given.module, given.use_shardy) == (STABLEHLO.encode(), None)


def test_a_changed_module_is_given_as_it_is_now(stablehlo: Path) -> None:
    module = load_module(stablehlo)
    changed = module.replace(name="changed")
    assert changed.stablehlo is None
    assert str(partitioner_input(changed).module).startswith("HloModule changed")


def test_named_shardings_have_an_entry_for_each_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "jaxlib_version", lambda: "0.12.0.1")
    given = partitioner_input(parse_module(NAMED))
    assert given.use_shardy
    assert shardings(given.module) == {
        "x": "{mesh['d'=4], [{'d'}, {}]}",
        "s": "{mesh['d'=4], []}",
        "y": "{mesh['d'=4], [{}, {}]}",
        "t": "{{mesh['d'=4], [{'d'}, {}]}, {mesh['d'=4], []}}",
    }


@pytest.mark.parametrize("version", ["0.11.2", "0.6", None])
def test_an_older_jaxlib_is_given_tiles(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "jaxlib_version", lambda: version)
    given = partitioner_input(parse_module(NAMED))
    assert not given.use_shardy
    assert shardings(given.module) == {
        "x": "{devices=[4,1]0,1,2,3}",
        "s": "{replicated}",
        "y": "{replicated}",
        "t": "{{devices=[4,1]0,1,2,3}, {replicated}}",
    }


@pytest.mark.parametrize(
    ("named", "tiles"),
    [
        ("{mesh['a'=2,'b'=3], [{'b'}]}", "{devices=[3,2]0,3,1,4,2,5 last_tile_dims={replicated}}"),
        ("{mesh['a'=2,'b'=3], [{'a','b'}]}", "{devices=[6]0,1,2,3,4,5}"),
        (
            "{mesh['a'=2,'b'=3], [{'a'}], manual={'b'}}",
            "{devices=[2,3]0,1,2,3,4,5 last_tile_dims={manual}}",
        ),
        ("{mesh['a'=2], manual}", "{devices=[2]0,1 last_tile_dims={manual}}"),
        ("{mesh[], replicated}", "{replicated}"),
        ("{maximal device=1}", "{maximal device=1}"),
    ],
)
def test_tiles_of_named_shardings(named: str, tiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "jaxlib_version", lambda: "0.10.2")
    text = "HloModule m\n\nENTRY main {{\n  x = f32[6] parameter(0), sharding={}\n  ROOT y = f32[6] add(x, x){}\n}}\n"
    names = text.format(named, ", sharding={mesh['z'=6], [{'z'}]}")
    assert shardings(partitioner_input(parse_module(names)).module)["x"] == tiles


def test_shardys_attributes_go_before_shardings_but_for_those_of_feeds() -> None:
    given = partitioner_input(
        parse_module(
            'HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["d"=2]>}}\n\nENTRY main {\n'
            "  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}, "
            'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"d\\"}]>"}\n'
            "  k = token[] after-all()\n"
            "  f = (f32[4], token[]) infeed(k), sharding={{maximal device=0}, {maximal device=0}}\n"
            "  g = f32[4] get-tuple-element(f), index=0\n"
            "  ROOT y = f32[4] add(x, g), sharding={devices=[2]<=[2]}\n}\n"
        )
    )
    assert given.use_shardy
    assert shardings(given.module) == {"f": "{{maximal device=0}, {maximal device=0}}"}


def test_a_rule_of_shardy_states_no_sharding() -> None:
    """JAX writes it beside shardings, which are kept."""
    text = (
        "HloModule m, num_partitions=2\n\nENTRY main {\n  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
        '  ROOT y = f32[4] add(x, x), frontend_attributes={xla.sdy.sharding_rule="#sdy.op_sharding_rule<([i])->([i])>"}'
        "\n}\n"
    )
    assert shardings(partitioner_input(parse_module(text)).module) == {"x": "{devices=[2]<=[2]}"}
