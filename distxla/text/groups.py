"""Replica groups in their three spellings, and the iota notation that shardings share with them."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np

from distxla.ir.mesh import Axis, Mesh, MeshError
from distxla.ir.replica_groups import GroupMode, ReplicaGroups
from distxla.text.lexer import BLANK, Lexer

MAX_DEVICES: Final = 1 << 20  # a list that is written in a few characters must not fill the memory


_AXIS = re.compile(r"\s*'((?:(?!//|/\*)[^'\n])*)'")  # text that looks like a comment is not part of a name

# Lists as programs write them: digits and commas. Others, also those with something wrong, are read piece by piece.
_PLAIN_INTS = r"\{[0-9]{1,18}(?:,[0-9]{1,18})*\}"
_PLAIN_LISTS = re.compile(rf"{BLANK}\{{({_PLAIN_INTS}(?:,{_PLAIN_INTS})*)\}}")


def read_replica_groups(lexer: Lexer) -> ReplicaGroups:
    """`{{0,1},{2,3}}`, `{}`, `[2,4]<=[8]`, `[2,4]<=[2,2,2]T(2,0,1)`, `mesh['x'=2,'y'=4] {'x'}`."""
    if lexer.at("["):
        return read_iota(lexer, 2)
    if lexer.at("mesh"):
        return _read_mesh_axes(lexer)
    if not lexer.at("{"):
        raise lexer.expected("replica groups: '{', '[' or 'mesh'")
    return ReplicaGroups(read_id_lists(lexer))


def read_group_mode(lexer: Lexer) -> GroupMode:
    """`cross_replica`, `cross_partition`, `cross_replica_and_partition` or `flattened_id`."""
    start = lexer.skip()
    word = lexer.word("a group mode")
    modes = {print_group_mode(mode): mode for mode in GroupMode}
    if word not in modes:
        raise lexer.error(f"expected one of {', '.join(modes)}, found {word!r}", start)
    return modes[word]


def print_group_mode(mode: GroupMode) -> str:
    return mode.name.lower()


def read_int_lists(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`."""
    return _read_lists(lexer)[0]


def read_id_lists(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    """`{{0,1},{2,3}}`, of devices or replicas, which are below MAX_DEVICES."""
    start = lexer.skip()
    lists, largest = _read_lists(lexer)
    if largest >= MAX_DEVICES:
        raise lexer.error(f"expected ids below {MAX_DEVICES}, found {largest}", start)
    return lists


def _read_lists(lexer: Lexer) -> tuple[tuple[tuple[int, ...], ...], int]:
    """With the largest number."""
    match = _PLAIN_LISTS.match(lexer.text, lexer.pos)
    if match is not None:
        lexer.pos = match.end()
        return _plain_lists(match.group(1))
    lists = tuple(read_ints(lexer) for _ in lexer.separated("{", "}", "a list of integers"))
    return lists, max((number for part in lists for number in part), default=0)


@lru_cache(maxsize=64)
def _plain_lists(text: str) -> tuple[tuple[tuple[int, ...], ...], int]:
    """`{0,1},{2,3}`, and the largest number; equal texts, which large programs have by the hundred, give one object."""
    lists = tuple(tuple(map(int, part.split(","))) for part in text[1:-1].split("},{"))
    return lists, max(map(max, lists))


def read_ints(lexer: Lexer, opening: str = "{", closing: str = "}") -> tuple[int, ...]:
    """`{1,0}`."""
    return tuple(lexer.integer() for _ in lexer.separated(opening, closing, "an integer"))


def read_iota(lexer: Lexer, rank: int | None = None) -> ReplicaGroups:
    """`[2,4]<=[2,2,2]T(2,0,1)`; `rank`: how many dimension sizes the first list must have."""
    start = lexer.skip()
    shape = read_ints(lexer, "[", "]")
    if rank is not None and len(shape) != rank:
        raise lexer.error(f"expected [groups,ids in a group], found {len(shape)} numbers", start)
    lexer.expect("<=")
    dims, permutation = read_reshape(lexer)
    if prod(shape) != prod(dims):
        raise lexer.error(f"expected as many ids on both sides of '<=', found {prod(shape)} and {prod(dims)}", start)
    if not shape or min(shape) < 1:
        raise lexer.error("expected positive dimension sizes", start)
    return ReplicaGroups.from_iota(shape, dims, permutation)


def read_reshape(lexer: Lexer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[2,2,2]T(2,0,1)`: the dimension sizes and the permutation, () where none is written."""
    start = lexer.skip()
    dims = read_ints(lexer, "[", "]")
    permutation: tuple[int, ...] = ()
    if lexer.at("T("):
        lexer.expect("T")
        permutation = read_ints(lexer, "(", ")")
        if sorted(permutation) != list(range(len(dims))):
            raise lexer.error(f"expected a permutation of {len(dims)} dimensions, found {list(permutation)}", start)
    if not dims or min(dims) < 1 or prod(dims) > MAX_DEVICES:
        raise lexer.error(f"expected positive dimension sizes of at most {MAX_DEVICES} devices together", start)
    return dims, permutation


def read_mesh(lexer: Lexer) -> Mesh:
    """`mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0))`; without device_ids the devices are in order."""
    start = lexer.skip()
    lexer.expect("mesh")
    axes: list[tuple[str, int]] = []
    for _ in lexer.separated("[", "]", "an axis"):
        name = _axis_name(lexer)
        lexer.expect("=")
        axes.append((name, lexer.integer("the size of an axis", 1, MAX_DEVICES)))
    if len({name for name, _ in axes}) != len(axes):
        raise lexer.error("two axes of the mesh have the same name", start)
    count = prod(size for _, size in axes)
    if count > MAX_DEVICES:
        raise lexer.error(f"expected a mesh of at most {MAX_DEVICES} devices, found {count}", start)
    devices = tuple(range(count))
    match = re.compile(r"\s*,\s*device_ids=").match(lexer.text, lexer.pos)
    if match is not None:
        lexer.pos = match.end()
        devices = _read_device_ids(lexer, count)
    return Mesh(tuple(axes), devices)


def _axis_name(lexer: Lexer) -> str:
    match = _AXIS.match(lexer.text, lexer.pos)
    if match is None:
        return lexer.word("the name of an axis")
    lexer.pos = match.end()
    return match.group(1)


def _read_device_ids(lexer: Lexer, count: int) -> tuple[int, ...]:
    start = lexer.skip()
    lexer.expect("(")
    if lexer.at("["):
        dims, permutation = read_reshape(lexer)
        table = np.arange(prod(dims)).reshape(dims)
        ids: list[int] = (table.transpose(permutation) if permutation else table).reshape(-1).tolist()
    else:
        ids = [lexer.integer("a device id", 0)]
        while lexer.accept(","):
            ids.append(lexer.integer("a device id", 0))
    lexer.expect(")")
    if len(ids) != count:
        raise lexer.error(f"expected {count} device ids, as many as the mesh has, found {len(ids)}", start)
    return tuple(ids)


def read_axes(lexer: Lexer, mesh: Mesh, closing: str | None = None) -> list[Axis]:
    """`{'x', 'y':(2)2}`: axes of the mesh, the second the part of axis y of size 2 below a part of 2.

    closing: a word that is allowed in place of the last one.
    """
    axes: list[Axis] = []
    for _ in lexer.separated("{", "}", "an axis"):
        if closing is not None and lexer.accept(closing):
            if not lexer.at("}"):
                raise lexer.expected("'}'")
            continue
        at = lexer.skip()
        name, above, size = _axis_name(lexer), 1, None
        if lexer.accept(":"):
            lexer.expect("(")
            above = lexer.integer("a size", 1, MAX_DEVICES)
            lexer.expect(")")
            size = lexer.integer("a size", 1, MAX_DEVICES)
        try:
            axes.append(mesh.axis(name, above, size))
        except MeshError as error:
            raise lexer.error(str(error), at) from None
    return axes


def _read_mesh_axes(lexer: Lexer) -> ReplicaGroups:
    """Groups that vary along some axes of a mesh."""
    start = lexer.skip()
    mesh = read_mesh(lexer)
    axes = read_axes(lexer, mesh)
    text = " ".join(lexer.text[start : lexer.pos].split())
    try:
        return ReplicaGroups(tuple(map(tuple, mesh.rows(axes))), mesh=text)
    except MeshError as error:
        raise lexer.error(str(error), start) from None


def print_replica_groups(groups: ReplicaGroups) -> str:
    """In the spelling in which they were written."""
    if groups.mesh is not None:
        return groups.mesh
    if groups.iota is not None:
        shape, dims, permutation = groups.iota
        return (
            print_ints(shape, "[]")
            + "<="
            + print_ints(dims, "[]")
            + ("T" + print_ints(permutation, "()") if permutation else "")
        )
    return print_int_lists(groups.groups)


def print_ints(values: tuple[int, ...], brackets: str = "{}") -> str:
    return brackets[0] + ",".join(map(str, values)) + brackets[1]


def print_int_lists(lists: tuple[tuple[int, ...], ...]) -> str:
    return "{" + ",".join(map(print_ints, lists)) + "}"
