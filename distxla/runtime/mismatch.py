"""Members that came to one round with different instructions, as the round itself found out (Status.MISMATCH)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distxla.codegen.abi import Status
from distxla.codegen.program import CompiledProgram, Site
from distxla.collectives import control_block as control
from distxla.collectives.signature import differences
from distxla.errors import CollectiveMismatchError, DistxlaError
from distxla.runtime.hosts.host import Records
from distxla.runtime.watch import site_text


def mismatch(records: Records, devices: Sequence[int], programs: Mapping[int, CompiledProgram]) -> DistxlaError:
    """What the members of a mismatched round ran, as one of `devices` found out."""
    for device in devices:
        if records.record(device, control.R_STATUS) != Status.MISMATCH:
            continue
        other = records.record(device, control.R_MISMATCH_DEVICE)
        mine = _site(records, device, records.record(device, control.R_SITE), programs)
        theirs = _site(records, other, records.record(device, control.R_MISMATCH_SITE), programs)
        if mine is None or theirs is None:
            break
        return CollectiveMismatchError(
            f"device {device} runs {site_text(mine)}, device {other} runs {site_text(theirs)} in the same round"
            + _differing(mine, theirs),
            mine.location,
        )
    return CollectiveMismatchError("members came to a round with different instructions")


def _site(records: Records, device: int, index: int, programs: Mapping[int, CompiledProgram]) -> Site | None:
    program = programs.get(records.record(device, control.R_PROGRAM)) if device < records.devices else None
    return program.sites[index] if program is not None and index < len(program.sites) else None


def _differing(mine: Site, theirs: Site) -> str:
    found = differences(mine.facets, theirs.facets)
    return f"; they differ in {found}" if found else ""
