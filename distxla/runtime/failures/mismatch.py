"""Members that reached one round, or one transfer, with instructions that do not belong together, as the round itself
detected (Status.MISMATCH)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.signature import differences
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import CollectiveMismatchError
from distxla.ir.module import Module
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram, Site
from distxla.runtime.failures.reports import group_of, instruction_of
from distxla.runtime.hosts.process_watch import site_text
from distxla.runtime.values.host import Records
from distxla.wording import mismatch_of, round_called, transfer_called

_Known = tuple[int, Site]


def mismatch(
    records: Records,
    devices: Sequence[int],
    programs: Mapping[int, CompiledProgram],
    modules: Mapping[int, Module],
    found: Mapping[int, DeviceState],
) -> CollectiveMismatchError:
    """The error for two members with different instructions, as the one of `devices` that found it recorded.

    Of several members with equal instructions the lowest is named.

    modules: by number, where they are known.  found: the state of all devices when the call failed.
    """
    for device in devices:
        if records.record(device, control_words.R_STATUS) != Status.MISMATCH:
            continue
        other = records.record(device, control_words.R_MISMATCH_DEVICE)
        mine = _site(records, device, records.record(device, control_words.R_SITE), programs)
        theirs = _site(records, other, records.record(device, control_words.R_MISMATCH_SITE), programs)
        if mine is None or theirs is None:
            break
        what = _called(records, (device, mine), (other, theirs), programs, modules)
        one, two = sorted(((device, mine), (other, theirs)), key=_device)
        if device in found and found[device].group and mine.facets != theirs.facets:
            arrived = _arrived(records, found, found[device], programs) | {device: mine, other: theirs}
            one, two = sorted((_first(arrived, mine), _first(arrived, theirs)), key=_device)
        known = [(number, site_text(site)) for number, site in (one, two)]
        text = mismatch_of(what, known[0], known[1], differences(one[1].facets, two[1].facets))
        error = CollectiveMismatchError(text, one[1].location)
        error.pair = one[0], two[0]
        return error
    return CollectiveMismatchError("members reached a round with different instructions")


def _arrived(
    records: Records,
    found: Mapping[int, DeviceState],
    device: DeviceState,
    programs: Mapping[int, CompiledProgram],
) -> dict[int, Site]:
    """The members seen in the round that a device has entered, and where each of them is."""
    sites = {}
    for member in device.group:
        seen = found.get(member)
        if seen is None or seen.doing not in (Doing.WAITS, Doing.ARRIVED):
            continue
        site = _site(records, member, records.record(member, control_words.R_SITE), programs)
        is_there = (seen.group, seen.round) == (device.group, device.round)
        if is_there and site is not None and site.instruction == seen.instruction:
            sites[member] = site
    return sites


def _first(arrived: Mapping[int, Site], like: Site) -> _Known:
    """The first member with the same instruction as this."""
    return min(((device, site) for device, site in arrived.items() if site.facets == like.facets), key=_device)


def _device(known: _Known) -> int:
    return known[0]


def _called(
    records: Records,
    mine: _Known,
    other: _Known,
    programs: Mapping[int, CompiledProgram],
    modules: Mapping[int, Module],
) -> str:
    """The round or transfer of both; joined channels (collectives/joined_channels.py) have the name of the send's."""
    device, site = mine
    loaded = records.record(device, control_words.R_PROGRAM)
    members = group_of(programs[loaded].communicators[site.communicator], device)
    if members:
        return round_called(members)
    (source, sent), (target, _) = (other, mine) if site.receives else (mine, other)
    instruction = instruction_of(sent, modules.get(records.record(source, control_words.R_PROGRAM)))
    channel = instruction.op.channel if instruction is not None else None
    return transfer_called(source, target, channel or 0)


def _site(records: Records, device: int, index: int, programs: Mapping[int, CompiledProgram]) -> Site | None:
    program = programs.get(records.record(device, control_words.R_PROGRAM)) if device < records.devices else None
    return program.sites[index] if program is not None and index < len(program.sites) else None
