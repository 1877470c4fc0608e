"""Rules of XLA's compiler for GPUs that sends and recvs of a scheduled program break although they run here.

Its rules are stricter than a program needs to end: they look at the text alone, one computation after the other. So
these are notes for users who take the program there.
"""

from __future__ import annotations

from collections.abc import Iterator

from distxla.collectives.channels import is_end, read_end
from distxla.ir.computation import Computation
from distxla.ir.module import Module
from distxla.program.channel_end import End, Pairs


def notes(module: Module) -> Iterator[str]:
    """A sentence for each rule that a computation of a scheduled module breaks, the first time."""
    if module.is_scheduled:
        for computation in module.reached():
            yield from _notes(module, computation)


def _notes(module: Module, computation: Computation) -> Iterator[str]:
    said: set[str] = set()
    open_: list[End] = []  # sends, or recvs, whose counterpart has not come yet

    def note(rule: str, end: object, text: str) -> Iterator[str]:
        if rule not in said:
            said.add(rule)
            yield f"XLA for GPUs refuses {end}: {text}"

    for instruction in computation:
        if is_end(instruction):
            end = read_end(instruction, module)
            if end.pairs is None:
                continue
            if _has_cycle(end.pairs):
                yield from note("cycle", end, "its pairs form a cycle")
            if open_ and open_[0].sends is not end.sends:
                if open_[0].pairs != end.pairs:
                    yield from note("pairs", end, f"its pairs are not those of {open_[0]} before it")
                open_.pop(0)
                continue
            if open_:
                joint = tuple(pair for other in open_ for pair in other.pairs or ()) + end.pairs
                if len(set(joint)) < len(joint):
                    yield from note("disjoint", end, f"it shares pairs with {open_[-1]} before it")
                elif _has_cycle(joint):
                    yield from note("joint", end, f"together with {open_[-1]} before it its pairs form a cycle")
            open_.append(end)
        elif open_ and instruction.op.is_collective:
            where = module.locate(instruction)
            shown = f"{instruction.name} ({where})" if where else instruction.name
            counterpart = "recv" if open_[0].sends else "send"
            yield from note("between", shown, f"it stands between {open_[0]} and its {counterpart}")
    if open_:
        yield from note("dangling", open_[0], f"its {'recv' if open_[0].sends else 'send'} is not in this computation")


def _has_cycle(pairs: Pairs) -> bool:
    following: dict[int, set[int]] = {}
    for source, target in pairs:
        following.setdefault(source, set()).add(target)
    waiting = {target: 0 for _, target in pairs}
    for source, target in set(pairs):
        waiting[target] += 1
        waiting.setdefault(source, 0)
    free = [device for device, count in waiting.items() if count == 0]
    while free:
        device = free.pop()
        del waiting[device]
        for target in following.get(device, ()):
            waiting[target] -= 1
            if waiting[target] == 0:
                free.append(target)
    return bool(waiting)
