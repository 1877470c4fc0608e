"""Shardy's attributes in the text of global modules."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.manual_partitions import shards_of
from distxla.ir.mesh import Mesh
from distxla.ir.sharding import Placement
from distxla.ir.shards import Shards
from distxla.text.sdy import UnreadableSharding, read_manual_axes, read_meshes, read_shardings

MESH = {"mesh": Mesh((("y", 2), ("x", 2)), (0, 1, 2, 3))}


def test_meshes() -> None:
    text = (
        '{mesh = #sdy.mesh<["y"=2, "x"=4]>, empty_mesh = #sdy.mesh<[]>, m.2 = #sdy.mesh<["a"=4], '
        "device_ids=[3, 2, 1, 0]>, one = #sdy.mesh<[], device_ids=[5]>}"
    )
    assert read_meshes(text) == {
        "mesh": Mesh((("y", 2), ("x", 4)), tuple(range(8))),
        "empty_mesh": Mesh((), ()),
        "m.2": Mesh((("a", 4),), (3, 2, 1, 0)),
        "one": Mesh((), (5,)),
    }


@pytest.mark.parametrize(
    ("text", "tiles", "places"),
    [
        ('#sdy.sharding<@mesh, [{"y"}, {"x"}]>', (2, 2), ((0, 0), (0, 1), (1, 0), (1, 1))),
        ('#sdy.sharding<@mesh, [{"x"}, {}]>', (2, 1), ((0, 0), (1, 0), (0, 0), (1, 0))),
        ('#sdy.sharding<@mesh, [{"x", "y"}]>', (4,), ((0,), (2,), (1,), (3,))),
        ('#sdy.sharding<@mesh, [{"x", ?}p1, {?}], replicated={"y"}>', (2, 1), ((0, 0), (1, 0), (0, 0), (1, 0))),
        ("#sdy.sharding<@mesh, []>", (), ((), (), (), ())),
        ('#sdy.sharding<mesh<["a"=4]>, [{"a":(1)2}, {}]>', (2, 1), ((0, 0), (0, 0), (1, 0), (1, 0))),
        ('#sdy.sharding<mesh<["a"=4]>, [{}, {"a":(2)2}]>', (1, 2), ((0, 0), (0, 1), (0, 0), (0, 1))),
        ('#sdy.sharding<mesh<["a"=4], device_ids=[3, 2, 1, 0]>, [{"a"}]>', (4,), ((3,), (2,), (1,), (0,))),
    ],
)
def test_one_sharding(text: str, tiles: tuple[int, ...], places: tuple[tuple[int, ...], ...]) -> None:
    (sharding,) = read_shardings(text, MESH)
    assert shards_of(sharding, len(tiles), 4) == Shards(tiles, places)


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ('#sdy.sharding<@mesh, [{"y"}, {}]>', Placement.TILED),
        ("#sdy.sharding<@mesh, [{?}, {}]>", Placement.WHOLE),
        ('#sdy.sharding<@mesh, [{}], unreduced={"y"}>', Placement.PARTIAL_SUM),
        ('#sdy.sharding<@mesh, [{"x"}], replicated={"y"}>', Placement.TILED),
        ("#sdy.sharding<@zero, []>", Placement.SINGLE),
        ("#sdy.sharding<@empty, [{}, {}]>", Placement.WHOLE),
        ('#sdy.sharding<mesh<["a"=1]>, [{"a"}]>', Placement.WHOLE),
    ],
)
def test_what_a_sharding_says_of_an_array(text: str, placement: Placement) -> None:
    meshes = {**MESH, **read_meshes("{empty = #sdy.mesh<[]>, zero = #sdy.mesh<[], device_ids=[0]>}")}
    (sharding,) = read_shardings(text, meshes)
    assert sharding.placement is placement


def test_a_list_of_shardings() -> None:
    text = '#sdy.sharding_per_value<[<@mesh, [{"y"}]>, <@mesh, []>, <@mesh, [{}, {}]>]>'
    assert [s.tiles for s in read_shardings(text, MESH)] == [(2,), (), (1, 1)]


def test_manual_axes() -> None:
    assert read_manual_axes('#sdy<manual_axes{"y", "x"}>') == {"x", "y"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('#sdy.sharding<@other, [{"y"}]>', "no mesh 'other'"),
        ('#sdy.sharding<@mesh, [{"z"}]>', "no axis 'z'"),
        ('#sdy.sharding<@mesh, [{"x":(1)3}]>', r"\(1\)3 does not divide axis 'x' of size 2"),
        ('#sdy.sharding<@mesh, [{"x"}, {"x"}]>', "the parts of one axis overlap"),
        ('#sdy.sharding<mesh<["x"=2], device_ids=[0, 2]>, [{"x"}]>', "are not 0 to 1, each once"),
        ("#sdy.sharding<@mesh>", "<@mesh> does not say how dimensions are cut"),
        ('#sdy.sharding<@mesh, [{"x"}', "without its end"),
    ],
)
def test_what_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(UnreadableSharding, match=message):
        read_shardings(text, MESH)


def test_a_mesh_of_another_size() -> None:
    (sharding,) = read_shardings('#sdy.sharding<@mesh, [{"x"}]>', MESH)
    with pytest.raises(UnreadableSharding, match="over 4 devices where there are 8 partitions"):
        shards_of(sharding, 1, 8)
