"""The commands' warnings of programs that are allowed but rarely meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.cli import terminal

if TYPE_CHECKING:
    from distxla.without_cluster.programs import RunPrograms


def tell_warnings(programs: RunPrograms) -> None:
    """On stderr, of programs that are verified; once for each, so that what compiles them does not tell it again."""
    from distxla.ops.support.one_device_groups import first_warning

    for program in programs.programs:
        found = first_warning(program.module, programs.counts)
        if found is not None:
            terminal.write_at(found.location, f"warning: {found.text()}")


__all__ = ["tell_warnings"]
