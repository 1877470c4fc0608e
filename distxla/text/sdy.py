"""Shardy's attributes in the frontend attributes of HLO text.

`#sdy.mesh<["y"=2, "x"=4]>`, `#sdy.sharding<@mesh, [{"y"}, {}]>`, `#sdy.sharding_per_value<[<@mesh, [..]>, ..]>`,
`#sdy<manual_axes{"y", "x"}>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from distxla.ir.mesh import Axis, Mesh, MeshError
from distxla.ir.sharding import Sharding

SHARDING_ATTRIBUTE = "xla.sdy.sharding"  # the frontend attribute of a value's sharding
IN_SHARDINGS, OUT_SHARDINGS = "xla.sdy.in_shardings", "xla.sdy.out_shardings"  # of a manual region
SHARDING_ATTRIBUTES = frozenset({SHARDING_ATTRIBUTE, IN_SHARDINGS, OUT_SHARDINGS})

_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')
_NAME = re.compile(r'"([^"]*)"(?:\s*:\s*\((\d+)\)(\d+))?')
_MESH = re.compile(r"([\w.\-]+)\s*=\s*#sdy\.mesh<")
_ONE = re.compile(r"<\s*(@[\w.\-]+|mesh<)")
_DEVICES = re.compile(r"device_ids\s*=\s*\[([\d\s,]*)\]")
_UNREDUCED = re.compile(r"unreduced\s*=\s*(?=\{)")


class UnreadableSharding(ValueError):
    """The attribute is not understood, or has a feature that distxla doesn't have; the message names it."""


def read_meshes(text: str) -> dict[str, Mesh]:
    """`{mesh = #sdy.mesh<["i"=8]>, …}`: by name."""
    return {match[1]: _mesh(match[1], _balanced(text, match.end() - 1)) for match in _MESH.finditer(text)}


def _mesh(name: str, body: str) -> Mesh:
    """`<["i"=8], device_ids=[..]>`; one without axes has one device, for arrays on that one alone."""
    axes = tuple((axis, int(size)) for axis, size in _AXIS.findall(body.partition("]")[0]))
    count = prod(size for _, size in axes)
    ids = _DEVICES.search(body)
    devices = tuple(range(count)) if axes else ()
    if ids and ids[1].strip():
        devices = tuple(int(i) for i in ids[1].split(","))
    if sorted(devices) != list(range(count)) if axes else len(devices) > 1:
        raise UnreadableSharding(f"the devices of the mesh {name} are not 0 to {count - 1}, each once")
    return Mesh(axes, devices)


def read_manual_axes(text: str) -> frozenset[str]:
    """`#sdy<manual_axes{"y", "x"}>`."""
    return frozenset(name for name, _, _ in _NAME.findall(text))


def read_shardings(text: str, meshes: Mapping[str, Mesh]) -> list[Sharding]:
    """Every sharding of the text, one or a list of them. UnreadableSharding where one can't be expressed."""
    found = []
    for match in _ONE.finditer(text):
        whole = _balanced(text, match.start())
        after = whole[match.end() - match.start() :]
        if match[1].startswith("@"):
            name = match[1][1:]
            if name not in meshes:
                raise UnreadableSharding(f"there is no mesh {name!r}")
            mesh = meshes[name]
        else:
            body = _balanced(text, match.end() - 1)
            mesh, after = _mesh("in the sharding", body), after[len(body) - 1 :]
        found.append(_sharding(whole, after, mesh))
    return found


def _sharding(text: str, after: str, mesh: Mesh) -> Sharding:
    """after: the text after the mesh, as in `, [{"y"}, {}], unreduced={"x"}>`."""
    if mesh.devices and not mesh.axes:
        return Sharding("maximal", text, device=mesh.devices[0])
    start = after.find("[")
    if start < 0:
        raise UnreadableSharding(f"{text} does not say how dimensions are cut")
    dims = _balanced(after, start)
    unreduced = _UNREDUCED.search(after, start + len(dims))
    try:
        parts = [_axes(part, mesh) for part in re.findall(r"\{[^}]*\}", dims)]
        sums = _axes(_balanced(after, unreduced.end()), mesh) if unreduced else []
        return mesh.sharding(text, parts, unreduced=sums)
    except MeshError as error:
        raise UnreadableSharding(str(error)) from error


def _axes(text: str, mesh: Mesh) -> list[Axis]:
    """`{"y", "x":(1)2, ?}`."""
    found = _NAME.findall(text)
    return [
        mesh.axis(name, int(above), int(dimension_size)) if above else mesh.axis(name)
        for name, above, dimension_size in found
    ]


def _balanced(text: str, start: int) -> str:
    """From the bracket at `start` to the one that closes it; quoted text doesn't count."""
    depth, quoted = 0, False
    for at in range(start, len(text)):
        symbol = text[at]
        if symbol == '"':
            quoted = not quoted
        elif not quoted and symbol in "<[{(":
            depth += 1
        elif not quoted and symbol in ">]})":
            depth -= 1
            if depth == 0:
                return text[start : at + 1]
    raise UnreadableSharding("an attribute without its end")
