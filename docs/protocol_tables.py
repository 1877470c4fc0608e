"""The tables and diagrams of docs/protocols.md, from the declarations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from types import ModuleType

from distxla.collectives.protocols import (
    channel,
    control_block,
    event,
    exported_memory,
    group,
    launch_board,
    permute,
    promised_memory,
    proxy_queue,
    rounds,
    stream,
)
from distxla.collectives.protocols.layout import Area, Part, Word, areas

# before those that import them
MODULES = (
    event,
    exported_memory,
    control_block,
    rounds,
    group,
    permute,
    channel,
    stream,
    proxy_queue,
    promised_memory,
    launch_board,
)
LINE = 64


def markdown_areas() -> str:
    """A section an area: a table of its words, and a diagram of its cache lines."""
    return "\n".join(text for module, area in declared() for text in _section(module, area))


def declared() -> list[tuple[ModuleType, Area]]:
    """All areas, each with the module that declares it."""
    found = {id(area): (module, area) for module in reversed(MODULES) for area in areas(vars(module))}
    return sorted(found.values(), key=lambda entry: MODULES.index(entry[0]))


def _section(module: ModuleType, area: Area) -> Iterator[str]:
    file = f"collectives/{module.__name__.removeprefix('distxla.collectives.').replace('.', '/')}.py"
    yield f"### {area.name[0].upper()}{area.name[1:]}\n"
    yield f"{area.meaning[0].upper()}{area.meaning[1:]}. `{file}`\n"
    yield "```text"
    yield from _diagram(area)
    yield "```\n"
    yield "| offset | word | type | written by | order | meaning |\n|---|---|---|---|---|---|"
    names = {id(value): name for name, value in vars(module).items() if isinstance(value, Word) and name[0] != "_"}
    for entry in _entries(area):
        if isinstance(entry, Part):
            often = {0: " each", 1: ""}.get(entry.count, f" × {entry.count}")
            yield f"| {entry.offset} | {entry.name} | {entry.area.name}{often} | | | {entry.meaning} |"
        else:
            constant = names.get(id(entry), "")
            word = f"`{constant}` {entry.name}" if constant else entry.name
            kind = f"{entry.kind} futex" if entry.futex else entry.kind
            yield f"| {int(entry)} | {word} | {kind} | {entry.writer} | {entry.order.value} | {entry.meaning} |"
    yield ""


def _entries(area: Area) -> list[Word | Part]:
    return sorted((*area.words, *area.parts), key=_begin)


def _begin(entry: Word | Part) -> int:
    return entry.offset if isinstance(entry, Part) else int(entry)


def _diagram(area: Area) -> Iterator[str]:
    """A row for each cache line in which a word begins."""
    for line, entries in groupby(_entries(area), lambda entry: _begin(entry) // LINE):
        places = " | ".join(f"{_begin(entry) - line * LINE}: {entry.name}" for entry in entries)
        yield f"{line * LINE:>6}  | {places} |"
