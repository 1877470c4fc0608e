"""A diagnosis in lines of text, for a terminal."""

from __future__ import annotations

from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.diagnosis.facts.findings import Divergence, Findings, never_end
from distxla.diagnosis.report.process_text import process_lines
from distxla.location import printable
from distxla.wording import chain, named

MOST_BEFORE, MOST_AFTER = 4, 2  # events of histories that are shown before they diverge, and from there on
SHOWN_DIVERGENCES = 4
SHOWN_CYCLES = 8
MOST_UNDECIDED = 8
MOST_PLACES = 64  # lines of devices, about
MOST_LINES = 12  # devices in the same instruction that are reported one by one


def text(diagnosis: Findings) -> str:
    """All but the summary."""
    return printable("\n".join(_lines(diagnosis)))


def _lines(diagnosis: Findings) -> list[str]:
    """All but the summary, each with two spaces before it."""
    if diagnosis.undecided:
        more = len(diagnosis.undecided) - MOST_UNDECIDED
        shown = [f"  {each}" for each in diagnosis.undecided[:MOST_UNDECIDED]]
        return [*shown, *([f"  … ({len(diagnosis.undecided)} in all)"] if more > 0 else [])]
    lines = [*process_lines(diagnosis), *_devices_lines(diagnosis)]
    if total := never_end(diagnosis):
        lines.append(f"  {total}")
    if diagnosis.cycles:
        count = len(diagnosis.cycles)
        cycles = ", ".join(map(chain, diagnosis.cycles[:SHOWN_CYCLES]))
        in_all = f", … ({count} in all)" if count > SHOWN_CYCLES else ""
        lines.append(f"  cycle{'s' if count > 1 else ''}: {cycles}{in_all}")
    if diagnosis.behind:
        what = "that" if diagnosis.cycles or diagnosis.without_end else "it"
        lines.append(f"  blocked behind {what}: {named(diagnosis.behind)}")
    for divergence in diagnosis.divergences[:SHOWN_DIVERGENCES]:
        lines += [f"  history: {divergence}", *_last_rounds(diagnosis, divergence)]
    if len(diagnosis.divergences) > SHOWN_DIVERGENCES:
        lines.append("  history: others diverge, too")
    if diagnosis.diverge_at is not None:
        lines.append(f"  they diverge at {diagnosis.diverge_at}")
    lines += [f"  note: {note}" for note in diagnosis.notes]
    lines += [f"  network: {line}" for line in diagnosis.network]
    lines += [f"  hint: {hint}" for hint in diagnosis.hints]
    lines += [f"  injected: {fault}" for fault in diagnosis.injected]
    return lines


def _devices_lines(diagnosis: Findings) -> list[str]:
    """Each device's state: those of equal states together."""
    grouped: dict[tuple[object, ...], list[DeviceState]] = {}
    for device in diagnosis.devices:
        grouped.setdefault(_likeness(device), []).append(device)
    lines: list[str] = []
    for number, devices in enumerate(grouped.values()):
        if len(lines) >= MOST_PLACES:
            left = [device for others in [*grouped.values()][number:] for device in others]
            return [*lines, f"  and {len(left)} devices more, in {len(grouped) - number} other places"]
        lines += _device_lines(devices)
    return lines


def _last_rounds(diagnosis: Findings, divergence: Divergence) -> list[str]:
    """The last events of both devices, as names and rounds, with a mark before the first divergence."""
    lines = []
    for who, device, first in (
        (divergence.who, divergence.device, divergence.one_event),
        (divergence.others, divergence.other_device, divergence.other_event),
    ):
        found = diagnosis.of(device)
        events = () if found is None else found.events
        place = len(events) if first < 0 else first
        shown = [
            f"{'> ' if number == place else ''}{event.instruction} {event.round}"
            for number, event in enumerate(events[: place + MOST_AFTER])
        ]
        left = ["..."] if place > MOST_BEFORE else []
        nothing = ["> nothing"] if first < 0 else []
        lines.append(f"    {who}: {', '.join([*left, *shown[max(0, place - MOST_BEFORE) :], *nothing])}")
    return lines


def _likeness(device: DeviceState) -> tuple[object, ...]:
    """Equal for devices that share a line of the text, or a part of it."""
    return (device.doing, device.program, device.instruction, device.location, device.opcode, device.host)


def _device_lines(devices: list[DeviceState]) -> list[str]:
    """Of devices that are in the same instruction: one line where they wait for the same, else one each."""
    groups: dict[tuple[object, ...], list[DeviceState]] = {}
    for device in devices:
        groups.setdefault((device.waits_for, device.round, device.group, device.loops), []).append(device)
    lines = [_device_line(group) for group in groups.values()]
    if len(lines) > MOST_LINES:
        left = [d.device for group in [*groups.values()][MOST_LINES - 1 :] for d in group]
        lines = [*lines[: MOST_LINES - 1], f"  and {named(left)} in the same instruction"]
    return lines


_PLURAL = {
    Doing.NOT_BEGUN: "have not begun",
    Doing.ENDED: "have ended",
    Doing.FAILED: "have failed",
    Doing.LOST: "were lost",
    Doing.ABSENT: "take no part",
    Doing.STOPPED: "are stopped",
    Doing.WAITS: "wait",
    Doing.ARRIVED: "have come",
    Doing.COMPUTES: "compute",
}


def doing_of(doing: Doing, devices: int) -> str:
    """`has ended`; of several devices `have ended`."""
    return _PLURAL[doing] if devices > 1 else doing.value


def _device_line(devices: list[DeviceState]) -> str:
    first, several = devices[0], len(devices) > 1
    who = named(d.device for d in devices)
    if first.doing in (Doing.ENDED, Doing.FAILED, Doing.LOST, Doing.ABSENT, Doing.NOT_BEGUN, Doing.STOPPED):
        last = f" {'after' if first.doing is Doing.ENDED else 'in'} {first.place}" if first.instruction else ""
        return f"  {who} {doing_of(first.doing, len(devices))}{last}"
    if first.doing is Doing.COMPUTES:
        where = f" {first.place}" if first.instruction else ""
        return f"  {who} compute{'' if several else 's'}{where}{_loops(first)}"
    details = [first.opcode, *_details(first)]
    if first.doing is Doing.ARRIVED:
        return f"  {who} ha{'ve' if several else 's'} reached {first.place}: {', '.join(filter(None, details))}"
    what = first.host or _whom(first)
    return f"  {who} wait{'' if several else 's'} in {first.place} for {what}: {', '.join(filter(None, details))}"


def _whom(device: DeviceState) -> str:
    if not device.waits_for:
        return "the rest of its round" if device.group else "another device"
    return named(device.waits_for)


def _details(device: DeviceState) -> list[str]:
    found = []
    if device.channel is not None:
        found.append(f"channel {device.channel}")
    if len(device.group) > 1:
        members = device.group if len(device.group) <= 16 else (*device.group[:8],)
        more = f",... {len(device.group)} members" if len(device.group) > 16 else ""
        found.append(f"group {{{','.join(map(str, members))}{more}}}")
    if device.round is not None:
        found.append(f"round {device.round}")
    if device.loops:
        found.append(_loops(device).strip())
    if device.location is not None and device.location.frame:
        found.append(f"from {device.location.frame}" + (f" ({device.op_name})" if device.op_name else ""))
    elif device.op_name:
        found.append(f"from {device.op_name}")
    return found


def _loops(device: DeviceState) -> str:
    """` in iteration 3 of while.2 in iteration 1 of while.1`."""
    texts = []
    for loop in reversed(device.loops):
        which = f"iteration {loop.iteration} of " if loop.iteration is not None else ""
        texts.append(f" in {which}{loop.instruction}")
    return "".join(texts)


__all__ = ["doing_of", "text"]
