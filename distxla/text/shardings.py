"""`sharding={...}` in all its forms."""

from __future__ import annotations

import re
from math import prod
from typing import Final

from distxla.ir.mesh import Axis, MeshError
from distxla.ir.sharding import Sharding
from distxla.text.groups import MAX_DEVICES, read_axes, read_ints, read_mesh, read_reshape
from distxla.text.lexer import MAX_DEPTH, Lexer

_KINDS: Final = ("replicated", "maximal", "manual", "unreduced", "unknown")
_SUBGROUPS: Final = ("replicated", "manual", "unreduced", "maximal", "unknown")
_FLAT = re.compile(r"\{[^{}\"/]*+\}")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_cache: dict[str, Sharding] = {}


def read_sharding(lexer: Lexer, depth: int = 0) -> Sharding:
    """One sharding with its braces, or a tuple of them."""
    start = lexer.skip()
    if depth >= MAX_DEPTH:
        raise lexer.error(f"shardings are nested deeper than {MAX_DEPTH}", start, start + 1)
    flat = _FLAT.match(lexer.text, start)
    if flat is not None and flat.group() in _cache:
        lexer.pos = flat.end()
        return _cache[flat.group()]
    lexer.expect("{", "a sharding in braces")
    if lexer.at("{") or lexer.at("}"):
        elements = _read_elements(lexer, depth)
        text = "{" + ", ".join(element.text for element in elements) + "}"
        return Sharding("tuple", text, elements=elements)
    if lexer.at("maximal_mesh") or lexer.at("single_device"):
        sharding = _read_single_device(lexer)
    else:
        sharding = _read_mesh_sharding(lexer, start) if lexer.at("mesh") else _read_tokens(lexer, start)
    if flat is not None and flat.end() == lexer.pos:
        if len(_cache) > 10_000:
            _cache.clear()
        _cache[flat.group()] = sharding
    return sharding


def _read_elements(lexer: Lexer, depth: int) -> tuple[Sharding, ...]:
    elements: list[Sharding] = []
    while not lexer.accept("}"):
        if elements:
            lexer.expect(",", "',' or '}' after a sharding")
        elements.append(read_sharding(lexer, depth + 1))
    return tuple(elements)


def _text(lexer: Lexer, start: int) -> str:
    text = " ".join(_COMMENT.sub(" ", lexer.text[start : lexer.pos]).split())
    return text.replace("{ ", "{").replace(" }", "}")


def _with_quotes(text: str) -> str:
    """The text of a sharding over a mesh whose axes have bare names, as a version of XLA wrote it; most read quotes."""
    parts: list[str] = []
    outer: list[str] = []  # the brackets around a part, within the sharding's own braces
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[\w.\-]+|\s+|.', text[1:-1]):
        if part in "[{(":
            outer.append(part)
        elif part in "]})":
            outer.pop()
        bare = outer and "(" not in outer and not part.isdigit() and re.fullmatch(r"[\w.\-]+", part)
        parts.append(f"'{part}'" if bare and "metadata" not in parts else part)
    return "{" + "".join(parts) + "}"


def _read_mesh_sharding(lexer: Lexer, start: int) -> Sharding:
    """`mesh['x'=2,'y'=4], [{'x'}, {}], manual={'y'}}`. For the list of dimensions there may be one of `replicated`,
    `manual` and `unreduced`, which is along all axes."""
    mesh = read_mesh(lexer)
    lexer.accept(",")
    dims: list[list[Axis]] | None = []
    found: dict[str, list[Axis]] = {}
    metadata = None
    whole = next((word for word in ("replicated", "manual", "unreduced") if lexer.accept_word(word)), None)
    if whole == "replicated":
        dims = None
    elif whole is not None:
        found[whole] = [Axis(name, 1, size) for name, size in mesh.axes]
    else:
        dims = [read_axes(lexer, mesh, closing="?") for _ in lexer.separated("[", "]", "the axes of a dimension")]
    while lexer.accept(","):
        at = lexer.skip()
        word = lexer.word("one of replicated=, unreduced=, manual= and metadata=")
        if word not in ("replicated", "unreduced", "manual", "metadata") or word in found:
            raise lexer.error(f"expected each of replicated=, unreduced=, manual= once, found {word!r}", at)
        lexer.expect("=")
        if word == "metadata":
            metadata = at
            lexer.balanced()
        else:
            found[word] = read_axes(lexer, mesh)
    lexer.expect("}", "',' or '}' in the sharding")
    text = _text(lexer, start)
    if "'" not in lexer.text[start : lexer.pos if metadata is None else metadata]:
        text = _with_quotes(text)
    try:
        return mesh.sharding(text, dims, found.get("manual", ()), found.get("unreduced", ()))
    except MeshError as error:
        raise lexer.error(str(error), start) from None


def _read_single_device(lexer: Lexer) -> Sharding:
    """`single_device[device_id=3]}`, or `maximal_mesh[device_id=3]}`, as older parsers have it."""
    if not lexer.accept_word("single_device"):
        lexer.expect("maximal_mesh")
    for symbol in ("[", "device_id", "="):
        lexer.expect(symbol)
    device = lexer.integer("a device id", 0)
    lexer.expect("]")
    lexer.expect("}")
    return Sharding("maximal", f"{{maximal_mesh[device_id={device}]}}", device)


def _read_tokens(lexer: Lexer, start: int) -> Sharding:
    kind: str | None = None
    device: int | None = None
    tile_dims: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    last: tuple[str, ...] = ()
    replicate = False
    seen: set[str] = set()
    while not lexer.accept("}"):
        at = lexer.skip()
        word = lexer.word("a sharding: " + ", ".join((*_KINDS, "device=", "devices=")) + " or '}'")
        if word in seen or (word in _KINDS and kind is not None):
            raise lexer.error(f"the sharding says {word!r} after {kind or word!r}", at)
        seen.add(word)
        if word in _KINDS:
            kind = word
        elif word == "device":
            lexer.expect("=")
            device = lexer.integer("a device id", 0)
        elif word == "devices":
            lexer.expect("=")
            kind = _devices_kind(lexer, kind, at)
            tile_dims, devices = _read_devices(lexer)
        elif word == "last_tile_dim_replicate":
            replicate = True
        elif word == "last_tile_dims":
            lexer.expect("=")
            last = tuple(_subgroup(lexer) for _ in lexer.separated("{", "}", "a kind of subgroup"))
        elif word in ("shard_like", "shard_as"):
            lexer.integer("the number of a shard group", 0)
        elif word == "metadata":
            lexer.expect("=")
            lexer.balanced()
        else:
            raise lexer.error(f"expected a sharding, found {word!r}", at)
    if kind is None:
        raise lexer.error("expected one of " + ", ".join((*_KINDS, "devices=")) + " in the sharding", start)
    if (kind == "maximal") != (device is not None):
        raise lexer.error("expected 'maximal' and 'device=' together", start)
    if kind != "devices" and (replicate or last):
        raise lexer.error("expected devices= together with the kinds of the last tile dimensions", start)
    return Sharding(kind, _text(lexer, start), device, tile_dims, devices, replicate, last)


def _devices_kind(lexer: Lexer, kind: str | None, at: int) -> str:
    if kind is not None:
        raise lexer.error(f"the sharding says 'devices' after {kind!r}", at)
    return "devices"


def _subgroup(lexer: Lexer) -> str:
    at = lexer.skip()
    word = lexer.word("a kind of subgroup")
    if word not in _SUBGROUPS:
        raise lexer.error(f"expected one of {', '.join(_SUBGROUPS)}, found {word!r}", at)
    return word


def _read_devices(lexer: Lexer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[2,4]<=[8]`, `[2,4]<=[4,2]T(1,0)` or `[2,2]0,1,2,3`: tile dimension sizes, device ids in tile order."""
    start = lexer.skip()
    tile_dims = read_ints(lexer, "[", "]")
    if not tile_dims or min(tile_dims) < 1 or prod(tile_dims) > MAX_DEVICES:
        raise lexer.error(f"expected positive dimension sizes of at most {MAX_DEVICES} devices together", start)
    devices: tuple[int, ...]
    if lexer.accept("<="):
        dims, permutation = read_reshape(lexer)
        devices = _iota(dims, permutation)
    else:
        ids = [lexer.integer("a device id or '<='", 0)]
        while lexer.accept(","):
            ids.append(lexer.integer("a device id", 0))
        devices = tuple(ids)
    if len(devices) != prod(tile_dims):
        raise lexer.error(f"expected {prod(tile_dims)} devices, found {len(devices)}", start)
    return tile_dims, devices


def _iota(dims: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
    import numpy as np

    table = np.arange(prod(dims)).reshape(dims)
    return tuple((table.transpose(permutation) if permutation else table).reshape(-1).tolist())


def parse_domain(text: str) -> tuple[Sharding, ...]:
    """The shardings on both sides of `{kind="sharding", entry={..}, exit={..}}`; () for a domain of another kind."""
    lexer = Lexer(text)
    kind: str | None = None
    sides: dict[str, Sharding] = {}
    for _ in lexer.separated("{", "}", "kind=, entry= or exit="):
        start = lexer.skip()
        word = lexer.word("kind=, entry= or exit=")
        lexer.expect("=")
        if word == "kind" and kind is None:
            kind = lexer.string()
        elif word in ("entry", "exit") and word not in sides:
            sides[word] = read_sharding(lexer)
        else:
            raise lexer.error(f"expected each of kind=, entry= and exit= once, found {word!r}", start)
    if kind is None or len(sides) < 2:
        raise lexer.error("expected kind=, entry= and exit= in the domain", 0)
    return (sides["entry"], sides["exit"]) if kind == "sharding" else ()
