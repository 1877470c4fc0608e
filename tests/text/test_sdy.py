"""Shardy's attributes in the text of global modules."""

from __future__ import annotations

import pytest

from distxla.ir.shards import Shards
from distxla.text.sdy import (
    Mesh,
    UnreadableSharding,
    read_manual_axes,
    read_meshes,
    read_named_sharding,
    read_shardings,
)

MESH = {"mesh": Mesh((("y", 2), ("x", 2)), (0, 1, 2, 3))}


def test_meshes() -> None:
    text = (
        '{mesh = #sdy.mesh<["y"=2, "x"=4]>, empty_mesh = #sdy.mesh<[]>, m.2 = #sdy.mesh<["a"=4], '
        "device_ids=[3, 2, 1, 0]>, one = #sdy.mesh<[], device_ids=[5]>}"
    )
    assert read_meshes(text) == {
        "mesh": Mesh((("y", 2), ("x", 4)), tuple(range(8))),
        "empty_mesh": Mesh((), (0,)),
        "m.2": Mesh((("a", 4),), (3, 2, 1, 0)),
    }


@pytest.mark.parametrize(
    ("text", "tiles", "places"),
    [
        ('#sdy.sharding<@mesh, [{"y"}, {"x"}]>', (2, 2), ((0, 0), (0, 1), (1, 0), (1, 1))),
        ('#sdy.sharding<@mesh, [{"x"}, {}]>', (2, 1), ((0, 0), (1, 0), (0, 0), (1, 0))),
        ('#sdy.sharding<@mesh, [{"x", "y"}]>', (4,), ((0,), (2,), (1,), (3,))),
        ('#sdy.sharding<@mesh, [{"x", ?}p1, {?}], replicated={"y"}>', (2, 1), ((0, 0), (1, 0), (0, 0), (1, 0))),
        ("#sdy.sharding<@mesh, []>", (), ((), (), (), ())),
    ],
)
def test_one_sharding(text: str, tiles: tuple[int, ...], places: tuple[tuple[int, ...], ...]) -> None:
    assert read_shardings(text, MESH, 4) == [Shards(tiles, places)]


def test_a_list_of_shardings() -> None:
    text = '#sdy.sharding_per_value<[<@mesh, [{"y"}]>, <@mesh, []>, <@mesh, [{}, {}]>]>'
    assert [s.tiles for s in read_shardings(text, MESH, 4)] == [(2,), (), (1, 1)]


def test_hlo_s_own_form() -> None:
    assert read_named_sharding("{mesh['y'=2,'x'=2], [{'x'}, {}]}", 4) == Shards(
        (2, 1), ((0, 0), (1, 0), (0, 0), (1, 0))
    )


def test_manual_axes() -> None:
    assert read_manual_axes('#sdy<manual_axes{"y", "x"}>') == {"x", "y"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('#sdy.sharding<@other, [{"y"}]>', "no mesh 'other'"),
        ('#sdy.sharding<@mesh, [{"z"}]>', "no axis 'z'"),
        ('#sdy.sharding<@mesh, [{"x":(1)2}]>', "a part of an axis"),
        ('#sdy.sharding<@mesh, [{"x"}], unreduced={"y"}>', "unreduced"),
        ('#sdy.sharding<@mesh, [{"x"}', "without its end"),
    ],
)
def test_what_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(UnreadableSharding, match=message):
        read_shardings(text, MESH, 4)


def test_a_mesh_of_another_size() -> None:
    with pytest.raises(UnreadableSharding, match="a mesh of 4 devices where there are 8 partitions"):
        read_shardings('#sdy.sharding<@mesh, [{"x"}]>', MESH, 8)
