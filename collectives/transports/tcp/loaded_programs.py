"""A proxy's view of the loaded programs of its host: groups that span hosts, and plans of their rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.tcp.group_state import Area, Group
from distxla.collectives.transports.tcp.point_to_point import Pairs
from distxla.collectives.transports.tcp.round_plan import RoundPlan, load_work, make_plan
from distxla.errors import CompileError, InternalError
from distxla.program.artifact import CompiledProgram
from distxla.program.work_table import RoundWork
from distxla.targets.registry import load_image, resolve_import
from distxla.targets.target import LoadedImage


class LoadedPrograms:
    """programs: by number.  groups: those that span hosts, by the offset of their state.  areas: of their states, by
    offset.

    They change only while no device runs.
    """

    def __init__(self, block: ControlBlock, host: int, home: Mapping[int, int], pairs: Pairs) -> None:
        """host: this one.  home: the host of each device.  pairs: gets the permutes that span hosts."""
        self._block, self._host, self._home, self._pairs = block, host, dict(home), pairs
        self.programs: dict[int, CompiledProgram] = {}
        self.groups: dict[int, Group] = {}
        self.areas: dict[int, Area] = {}
        self._images: dict[int, LoadedImage] = {}
        self._users: dict[int, set[int]] = {}  # the programs that have a state, by its offset
        self._plans: dict[tuple[int, int, int, int], RoundPlan] = {}

    def load(self, number: int, program: CompiledProgram, communicators: Mapping[int, Sequence[int | None]]) -> None:
        """Add a program that local devices run.

        communicators: for each local device that runs it, the offset of its group's state by communicator.
        """
        self.programs[number] = program
        crossing = False
        for device, offsets in communicators.items():
            for spec, offset in zip(program.communicators, offsets, strict=True):
                group = next((g for g in spec.groups if device in g), ())
                if offset is None or len({self._home[member] for member in group}) == 1:
                    continue
                self._users.setdefault(offset, set()).add(number)
                if spec.pairs:
                    self._pairs.add(offset, group, spec.pairs)
                    continue
                if spec.state_bytes[spec.groups.index(group)] != group_words.group_bytes(len(group)):
                    continue  # not a group with rounds
                crossing = True
                if offset not in self.groups:
                    found = Group(self._block, offset, group, self._home, self._host)
                    self.groups[offset] = found
                    self.areas.update({area.offset: area for area in found.areas})
        if crossing:
            self._images[number] = load_image(program, _resolve)

    def unload(self, number: int) -> None:
        """Remove a program that no device runs any more, and the groups that only it used."""
        self.programs.pop(number, None)
        image = self._images.pop(number, None)
        if image is not None:
            image.close()
        for key in [key for key in self._plans if key[0] == number]:
            del self._plans[key]
        for offset in [offset for offset, users in self._users.items() if number in users]:
            self._users[offset].discard(number)
            if not self._users[offset]:
                del self._users[offset]
                self._pairs.remove(offset)
                group = self.groups.pop(offset, None)
                for area in group.areas if group is not None else ():
                    del self.areas[area.offset]

    def plan(self, area: Area, signature: int, site: int, device: int) -> RoundPlan:
        """The plan of a round that a device of this host has reached."""
        number = self._block.record(device, control_words.R_PROGRAM)
        key = (number, site, signature, area.group.offset)
        plan = self._plans.get(key)
        if plan is None:
            work = self._work(number, site, signature, len(area.group.members))
            plan = self._plans[key] = make_plan(load_work(work, self._images[number]), area.group.homes, self._host)
        return plan

    def _work(self, number: int, site: int, signature: int, members: int) -> RoundWork:
        """The round of a site that a group of so many members has reached."""
        for work in self.programs[number].sites[site].rounds:
            if (work.signature, work.members) == (signature, members):
                return work
        raise InternalError(f"site {site} of program {number} has no round {signature:016x} of {members} members")


def _resolve(name: str) -> int:
    """The address of an imported function; the user's own functions are never called from here."""
    try:
        return resolve_import(name)
    except CompileError:
        return 0
