"""The tables of frames of docs/protocols.md, from the declarations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from distxla.wire.frame import Frame, Frames


def markdown_frames(frames: Frames) -> str:
    """A section for one sort of connection: a table with a row a frame and a row a field."""
    return "\n".join(_section(frames))


def _section(frames: Frames) -> Iterator[str]:
    yield f"### Frames {frames.name}\n"
    files = sorted({_file(one.__module__) for one in frames.by_kind.values()})
    yield f"Purpose {frames.purpose} in the handshake. {', '.join(f'`{file}`' for file in files)}\n"
    yield "| kind | frame | field | type | meaning | payload |\n|---|---|---|---|---|---|"
    for kind, one in sorted(frames.by_kind.items()):
        yield from _rows(kind, one)
    yield ""


def _rows(kind: int, one: type[Frame]) -> Iterator[str]:
    meaning = " ".join((inspect.getdoc(one) or "").split())
    yield f"| {kind} | `{one.NAME}` | | | {meaning} | {one.PAYLOAD or 'none'} |"
    for field in one.fields():
        yield f"| | | {field.name} | {field.type}, at {field.offset} | {field.meaning} | |"


def _file(module: str) -> str:
    path = module.replace(".", "/") + ".py"
    return path.removeprefix("distxla/") if path.startswith("distxla/collectives/") else path
