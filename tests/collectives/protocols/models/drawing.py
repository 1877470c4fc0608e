"""Programs of models as text: a line a step, indented by branches and loops, and a table of their accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distxla.collectives.protocols.control_block import R_WAIT_WORD
from distxla.collectives.protocols.layout import Order, Word
from tests.collectives.protocols.models.machine import NEGATED, ModelStep, Process, Value, title
from tests.collectives.protocols.models.routines import routine

READS = {Order.PLAIN: "plain", Order.MONOTONIC: "monotonic", Order.RELEASE: "acquire", Order.FENCED: "seq_cst"}
WIDTH = 64
SECTIONS = {  # of the documentation: which routines, by the begins of their names
    "Waiting and waking": ("wait", "wake"),
    "Rounds of a group": ("group round",),
    "Small messages of a permute": ("small permute begin", "small permute end"),
    "Large messages of a permute": ("large permute begin", "large permute end"),
    "Channels": (
        "eager send",
        "large send",
        "large zero-copy send",
        "large send-done",
        "recv with a receive buffer",
        "eager recv-done",
        "large recv-done",
    ),
    "Streams": ("stream await", "stream taken", "stream room", "stream posted"),
    "Calls": ("serve", "call"),
    "Joint calls": ("launch log", "launch issue", "launch arrive", "launch note site", "launch write apart"),
}


def markdown_models() -> str:
    """A section a protocol: a table of each routine's accesses to each word, and a diagram of each routine."""
    return "\n".join(text for heading, names in SECTIONS.items() for text in _section(heading, names))


def _section(heading: str, names: Sequence[str]) -> Iterator[str]:
    processes = [routine(name) for name in names]
    yield f"### {heading}\n"
    yield from accesses(processes)
    for process in processes:
        yield f"\n{process.name}:\n\n```text"
        yield from drawn(process)
        yield "```"
    yield ""


def drawn(process: Process) -> Iterator[str]:
    """The steps; those of a shared routine are one line, as is a loop over members or leaves."""
    before = ""
    for step in process.steps[:-1]:
        if step.again or (step.routine and step.routine == before):
            continue
        before = step.routine
        text, order = _line(step)
        if text:
            yield f"{'│ ' * step.depth}{text}".ljust(WIDTH) + order if order else f"{'│ ' * step.depth}{text}"


def _line(step: ModelStep) -> tuple[str, str]:
    """A step's text and its memory order; nothing for the end of a loop, and for checks."""
    name = _short(step.place[0], step.word)
    if step.routine:
        return step.routine, ""
    if step.kind == "jump":
        return _jump(step), ""
    texts = {
        "load": f"{step.register} ← {name}",
        "store": f"{name} ← {_value(step.value) if step.word is not R_WAIT_WORD else 'its place or 0'}",
        "add": f"{step.register} ← {name}, then {name} += {step.value}",
        "swap": f"{step.register} ← {name}, then {name} ← {_value(step.value)}",
        "cas": f"{step.register} ← ({name} = {_value(step.condition[2])}), then {name} ← {_value(step.value)} if so",
        "fence": "fence",
        "sleep": f"sleep while {name} = {_value(step.value)}",
        "nap": f"sleep while {name} = {_value(step.value)}, for a short time",
        "wake": f"wake those that sleep on {name}",
        "assign": f"{step.register} ← {_value(step.value)}",
        "increment": f"{step.register} ← {_value(step.value)} + 1",
        "end": "return",
    }
    return texts.get(step.kind, ""), _order(step)


def _order(step: ModelStep) -> str:
    if step.kind == "fence":
        return step.role or READS[step.order]
    if step.word is None:
        return ""
    if step.kind == "load":
        return READS[step.order]
    return {"store": step.order.value, "add": "seq_cst", "swap": "seq_cst", "cas": "seq_cst"}.get(step.kind, "")


def _jump(step: ModelStep) -> str:
    left, relation, right = step.condition
    if step.role == "when":
        return f"if {left} {NEGATED[relation]} {_value(right)}:"
    if step.role == "leave":
        return f"until {left} {relation} {_value(right)}"
    return {"repeat": "repeat:", "else": "else:"}.get(step.role, "")


def _short(place: str, word: Word | None) -> str:
    return f"[{word.name if word is not None else place}]"


def _value(value: Value) -> str:
    return str(value)


def accesses(processes: Sequence[Process]) -> Iterator[str]:
    """A table: the routines that read, write and update each word, the memory orders, and the routines that sleep."""
    rows: dict[str, dict[str, list[str]]] = {}
    for process in processes:
        for step in process.steps:
            if step.word is not None and not step.routine:
                found = rows.setdefault(title(step.word), {}).setdefault(process.name, [])
                what = _access(step)
                if what not in found:
                    found.append(what)
    names = [process.name for process in processes]
    yield f"| word | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for word, by in sorted(rows.items()):
        yield f"| {word} | {' | '.join('; '.join(by.get(name, [])) for name in names)} |"


def _access(step: ModelStep) -> str:
    kind = {"load": "read", "store": "write", "add": "update", "swap": "update", "cas": "update"}.get(step.kind)
    return f"{kind} {_order(step)}" if kind else step.kind
