"""Bitcasts between tiled layouts against tiles written out: an array of the elements' numbers is cut into blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.shape import Shape
from distxla.ir.tiles import UnknownPlaces, in_memory, moved_by_tiles
from distxla.text.parser import parse_module
from distxla.text.shapes import parse_shape
from tests.collectives.executors import EXECUTORS, run_module
from tests.executable import require_executable

Array = np.ndarray[Any, Any]
PADDING = -1


def places(shape: Shape) -> Array:
    """By place in memory, the number of the element that lies there."""
    assert shape.layout is not None
    array = np.arange(shape.size).reshape(shape.dims).transpose(shape.layout.major_to_minor)
    for tile in shape.layout.tiles:
        array = array.reshape((1,) * (len(tile) - array.ndim) + array.shape)
        first = array.ndim - len(tile)
        sizes = array.shape[first:]
        more = [(0, -dim_size % t) for dim_size, t in zip(sizes, tile, strict=True)]
        array = np.pad(array, [(0, 0)] * first + more, constant_values=PADDING)
        blocks = [part for dim_size, t in zip(array.shape[first:], tile, strict=True) for part in (dim_size // t, t)]
        array = array.reshape((*array.shape[:first], *blocks))
        array = array.transpose((*range(first), *range(first, array.ndim, 2), *range(first + 1, array.ndim, 2)))
    return array.reshape(-1)


def bitcast(source: Shape, target: Shape) -> Array:
    """For each element of the target the number of the source's that it is; None where tiles don't tell."""
    there, here = places(source), places(target)
    assert there.shape == here.shape
    assert ((there == PADDING) == (here == PADDING)).all()
    found = np.empty(target.size, int)
    found[here[here != PADDING]] = there[here != PADDING]
    return found.reshape(target.dims)


def untiled(shape: Shape) -> Shape:
    assert shape.layout is not None
    return dataclasses.replace(shape, layout=dataclasses.replace(shape.layout, tiles=()))


# (operand, result, whether tiles make a difference)
CASES = [
    ("f32[16,256]{1,0:T(8,128)}", "f32[2,2,8,128]{3,2,0,1:T(8,128)}", True),
    ("f32[2,2,8,128]{3,2,0,1:T(8,128)}", "f32[16,256]{1,0:T(8,128)}", True),
    ("f32[256,16]{0,1:T(8,128)}", "f32[2,2,8,128]{3,2,1,0:T(8,128)}", True),
    ("f32[16,256]{1,0:T(8,128)}", "s32[4096]{0:T(1024)}", True),
    ("bf16[32,128]{1,0:T(8,128)(2,1)}", "bf16[4,4,128,2]{3,2,1,0:T(128,2)}", True),
    ("f32[3,16,256]{2,1,0:T(8,128)}", "f32[3,2,2,8,128]{4,3,1,2,0:T(8,128)}", True),
    ("f32[16,128]{1,0:T(8,128)}", "s32[2048]{0:T(1024)}", False),
    ("f32[2,8,128]{2,1,0:T(8,128)}", "f32[16,128]{1,0:T(8,128)}", False),
    ("bf16[8,3,2,16]{3,1,2,0:T(8,128)(2,1)}", "bf16[8,2,3,16]{3,2,1,0:T(8,128)(2,1)}", False),
    # with padding
    ("f32[2,2,8]{2,1,0:T(2,128)}", "f32[2,8,2]{1,2,0:T(2,128)}", False),
    ("f32[10,100]{1,0:T(8,128)}", "f32[100,10]{0,1:T(8,128)}", False),
    ("f32[4,16,100]{2,1,0:T(8,128)}", "f32[64,100]{1,0:T(8,128)}", False),
    ("f32[5,1,7]{2,1,0:T(1,128)}", "f32[5,7]{1,0:T(1,128)}", False),
    ("f32[]{:T(128)}", "f32[1]{0:T(128)}", False),
    ("pred[]{:T(512)}", "pred[1,1]{1,0:T(4,128)}", False),
]


@pytest.mark.parametrize(("operand", "result", "differs"), CASES)
def test_both_executors_read_the_tiled_bytes(operand: str, result: str, differs: bool) -> None:
    source, target = parse_shape(operand), parse_shape(result)
    wanted = bitcast(source, target) if source.size > 1 else np.zeros(target.dims, int)
    assert (moved_by_tiles(source, target) is not None) == differs
    given = np.arange(source.size).reshape(source.dims).astype(source.dtype.dtype)
    text = f"HloModule m\nENTRY e {{\n  x = {operand} parameter(0)\n  ROOT r = {result} bitcast(x)\n}}\n"
    for executor in EXECUTORS:
        ((got,),) = run_module(executor, text, [(given,)], 1)
        expected = given.reshape(-1)[wanted].view(target.dtype.dtype)
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes(), executor


def test_fused_with_what_is_around() -> None:
    text = """HloModule m
f {
  x = f32[16,256]{1,0:T(8,128)} parameter(0)
  n = f32[16,256]{1,0:T(8,128)} negate(x)
  b = f32[2,2,8,128]{3,2,0,1:T(8,128)} bitcast(n)
  ROOT r = f32[2,2,8,128]{3,2,1,0:T(8,128)} copy(b)
}
ENTRY e {
  x = f32[16,256]{1,0:T(8,128)} parameter(0)
  ROOT r = f32[2,2,8,128]{3,2,1,0:T(8,128)} fusion(x), kind=kLoop, calls=f
}
"""
    x = np.arange(4096, dtype=np.float32).reshape(16, 256)
    wanted = -x.reshape(2, 8, 2, 128).transpose(2, 0, 1, 3)
    for executor in EXECUTORS:
        ((got,),) = run_module(executor, text, [(x,)], 1)
        np.testing.assert_array_equal(got, wanted)


# of equal bytes in whole tiles, or of elements of other widths
REREAD = [
    ("f16[8,24]{1,0:T(8,128)(2,1)}", "u32[4,128]{1,0:T(4,128)}"),
    ("u32[4,128]{1,0:T(4,128)}", "f16[8,24]{1,0:T(8,128)(2,1)}"),
    ("f32[3,6]{1,0:T(4,128)}", "f32[3,4]{1,0:T(4,128)}"),
    ("f32[3,4]{1,0:T(4,128)}", "f32[3,6]{1,0:T(4,128)}"),
    ("f32[10,100]{0,1:T(8,128)}", "f32[9,104]{0,1:T(8,128)}"),
    ("s8[5,40]{1,0:T(8,128)(4,1)}", "u32[2,30]{1,0:T(2,128)}"),
    ("f32[5]{0:T(8,128)}", "f32[3,7]{1,0:T(8,128)}"),
    ("f32[]{:T(128)}", "f32[3]{0:T(128)}"),
    ("f64[2,3]{1,0:T(2,128)}", "f32[4,8]{1,0:T(4,128)}"),
    ("f32[2,3]{1,0}", "u8[24]{0}"),
    ("u8[4,2]{0,1}", "u16[2,2]{0,1}"),
    ("u8[24]{0:T(1024)}", "f32[2,3]{1,0}"),
]


@pytest.mark.parametrize(("operand", "result"), REREAD)
def test_padding_is_zero_where_it_becomes_elements(operand: str, result: str) -> None:
    source, target = parse_shape(operand), parse_shape(result)
    tiled = source.layout is not None and target.layout is not None and source.layout.tiles and target.layout.tiles
    there, here = (places(s if tiled else untiled(s)) for s in (source, target))
    given = np.arange(1, source.size + 1).reshape(source.dims).astype(source.dtype.dtype)
    memory = np.zeros(there.size, source.dtype.dtype)
    memory[there != PADDING] = given.reshape(-1)[there[there != PADDING]]
    expected = np.empty(target.size, target.dtype.dtype)
    expected[here[here != PADDING]] = memory.view(target.dtype.dtype)[here != PADDING]
    text = f"HloModule m\nENTRY e {{\n  x = {operand} parameter(0)\n  ROOT r = {result} bitcast(x)\n}}\n"
    for executor in EXECUTORS:
        ((got,),) = run_module(executor, text, [(given,)], 1)
        assert got.shape == target.dims
        assert got.tobytes() == expected.tobytes(), executor


UNKNOWN = [
    ("f32[4]{0:T(128)}", "f32[2,2]{1,0:T(2,128)}"),  # the second row is padding
    ("f32[10,100]{1,0:T(8,128)}", "f32[1000]{0:T(1024)}"),
    ("f32[100,8]{1,0:T(8,128)}", "f32[8,100]{1,0:T(8,128)}"),
    ("f32[8,128]{1,0:T(*,128)}", "f32[1024]{0:T(1024)}"),
]


@pytest.mark.parametrize(("operand", "result"), UNKNOWN)
def test_elements_that_would_be_padding_are_refused_at_the_run(operand: str, result: str) -> None:
    with pytest.raises(UnknownPlaces):
        moved_by_tiles(parse_shape(operand), parse_shape(result))
    text = f"HloModule m\nENTRY e {{\n  x = {operand} parameter(0)\n  ROOT r = {result} bitcast(x)\n}}\n"
    module = parse_module(text, "m.hlo")
    verify_module(module)
    with pytest.raises(UnsupportedOpError, match="their tiles do not give each element a place") as caught:
        require_executable(module)
    assert str(caught.value.location) == f"m.hlo:4:{13 + len(result)}"


def test_padding_within_a_tile_has_no_known_place() -> None:
    assert in_memory(parse_shape("f32[16]{0:T(8)(3)}"), tiled=True) is None
