"""Writes the generated tables into docs/ops.md, docs/guide/custom_calls.md and docs/protocols.md, between markers.

`make ops-table` runs it, tests compare.
"""

from __future__ import annotations

from pathlib import Path

from distxla.cli.launch_frames import LAUNCH_FRAMES
from distxla.cli.op_documentation import markdown_table, markdown_targets
from distxla.collectives.transports.tcp.frames import PROXY_FRAMES
from distxla.jax.processes.messages import PROCESS_FRAMES
from distxla.runtime.hosts.commands import DRIVER_FRAMES
from distxla.runtime.hosts.survey import SURVEY_FRAMES
from docs.frame_tables import markdown_frames
from docs.protocol_tables import markdown_areas
from tests.collectives.protocols.models.drawing import markdown_models

OPS = Path(__file__).parent / "ops.md"
CUSTOM_CALLS = Path(__file__).parent / "guide" / "custom_calls.md"
PROTOCOLS = Path(__file__).parent / "protocols.md"


def updated_ops(text: str) -> str:
    """docs/ops.md's text with the table that the op classes give."""
    return _between(text, "ops", markdown_table())


def updated_custom_calls(text: str) -> str:
    """docs/guide/custom_calls.md's text with the table that the classes of targets give."""
    return _between(text, "targets", markdown_targets())


def updated_protocols(text: str) -> str:
    """docs/protocols.md's text with the sections that the declarations and the models give."""
    sorts = PROXY_FRAMES, DRIVER_FRAMES, PROCESS_FRAMES, LAUNCH_FRAMES, SURVEY_FRAMES
    frames = "\n".join(map(markdown_frames, sorts))
    sections = {"protocols": markdown_areas(), "models": markdown_models(), "frames": frames}
    for name, section in sections.items():
        text = _between(text, name, section)
    return text


def _between(text: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"there is no {begin.strip()} … {end}")
    return f"{head}{begin}{table}{end}{tail}"


if __name__ == "__main__":
    OPS.write_text(updated_ops(OPS.read_text()))
    CUSTOM_CALLS.write_text(updated_custom_calls(CUSTOM_CALLS.read_text()))
    PROTOCOLS.write_text(updated_protocols(PROTOCOLS.read_text()))
