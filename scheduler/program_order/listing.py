"""A schedule as text: HLO that can be read again, with the memory of each step in comments.

    // at most 98304 bytes, in %z: 32768 of %w, 32768 of %n, 32768 of %z
    ENTRY %e (x: f32[64,128]) -> f32[64,128] {
      %x = f32[64,128] parameter(0)
      %w = f32[64,128] tanh(%x)                     //  32768 B  +32768
      %n = f32[64,128] dot(%w, %x), ..              //  65536 B  +32768 -32768

The first number counts the bytes of the arena that are in use while the instruction runs; then the bytes that its
results take before it, and those that are free after it. `(.. inside)` is the part of the first number that a loop's or
a branch's own instructions need at their peak; each of them has its numbers, too, which begin from 0. Instructions that
run no code have none. Parameters, constants and results of the module are not in the arena (memory.py).
"""

from __future__ import annotations

from distxla.ir.computation import Computation
from distxla.ir.module import Module
from distxla.scheduler.program_order.memory import ComputationMemory, ModuleMemory, Profile, Role
from distxla.text.header import print_header
from distxla.text.printer import print_computation

# Comments of long lines follow them at once.
COLUMN = 96
LARGEST = 4

_INSIDE = {
    Role.ENTRY: "",
    Role.BODY: ", beside the loop's state",
    Role.CONDITION: ", beside the loop's state",
    Role.BRANCH: ", beside the conditional's operands and results",
}


def print_schedule(module: Module, written: Module | None = None) -> str:
    """The text of a scheduled module. written: the same instructions in the form in which they are to be printed."""
    written = written or module
    memory = ModuleMemory(module)
    parts = [print_header(written)]
    listed: dict[str, str] = {}
    for computation in module.computations:
        if computation.name in memory.roles:
            found = memory.of(computation)
            memory.settle(found, range(len(computation.instructions)))
            text = _text(written, computation.name)
            listed[computation.name] = _listed(text, found, memory.profiles[computation.name])
    parts.extend(listed.get(c.name) or _text(written, c.name) for c in written.computations)
    return "\n".join(parts)


def _text(module: Module, name: str) -> str:
    return print_computation(module[name], is_entry=name == module.entry)


def _listed(text: str, memory: ComputationMemory, profile: Profile) -> str:
    head, *lines, end = text.splitlines()
    notes = _notes(memory, profile)
    steps = [f"{line:<{COLUMN}} // {note}" if note else line for line, note in zip(lines, notes, strict=True)]
    return "\n".join([_peak(memory.computation, memory.role, profile), head, *steps, end, ""])


def _notes(memory: ComputationMemory, profile: Profile) -> list[str]:
    width = len(str(profile.peak))
    notes = []
    for position, runs in enumerate(memory.runs):
        parts = [f"{profile.running[position]:>{width}} B"]
        for sign, change in (("+", profile.added[position]), ("-", profile.freed[position])):
            parts.extend([f"{sign}{change}"] if change else [])
        if profile.inside[position]:
            parts.append(f"({profile.inside[position]} inside)")
        notes.append(" ".join(parts) if runs else "")
    return notes


def _peak(computation: Computation, role: Role, profile: Profile) -> str:
    """The contents of the arena at the peak, the largest first."""
    if not profile.peak:
        return f"// no memory{_INSIDE[role]}"
    position = profile.peak_position
    held = profile.at(position)
    parts = [f"{place.size} of %{place.owner}" for place in held[:LARGEST]]
    if len(held) > LARGEST:
        parts.append(f"{sum(place.size for place in held[LARGEST:])} of {len(held) - LARGEST} more")
    if profile.inside[position]:
        parts.append(f"{profile.inside[position]} inside")
    where = computation.instructions[position].name
    return f"// at most {profile.peak} bytes{_INSIDE[role]}, in %{where}: {', '.join(parts)}"
