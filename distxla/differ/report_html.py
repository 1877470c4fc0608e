"""The report of a comparison as a page, and as what a notebook's cell shows: made of its JSON (report.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from distxla.diagnosis.report.excerpts import source_excerpt
from distxla.diagnosis.report.html_markup import about, counts, escape, in_notebook, listed_hints, table, whole_page
from distxla.machine.packages import installed_version
from distxla.wording import counted, listed

Json = Mapping[str, Any]

MOST_RESULTS = 12
MOST_BEFORE, MOST_AFTER = 40, 8  # instructions that are shown before the first difference, and from there on
NONE = ("none", "no twin")  # relations that are none


def page(comparison: Json, command: str = "") -> str:
    """The whole page. command: the one that has compared, "" for none."""
    return whole_page(headline_of(comparison), _parts(comparison, command))


def fragment(comparison: Json) -> str:
    """What a cell of a notebook shows."""
    return in_notebook(_parts(comparison, ""))


def fragment_of_first(first: Json) -> str:
    """What a cell of a notebook shows of the place alone."""
    return in_notebook([f"<h1>{escape(_headline_of_first(first))}</h1>", *_first(first)])


def headline_of(comparison: Json) -> str:
    """`First difference: a missing psum at model.py:12`."""
    results, first = len(comparison["results"]), comparison["first"]
    if comparison["same"] and not comparison.get("compared", True):
        return f"The same for all inputs: {counted(len(comparison['relations']), 'instruction')}, nothing was run"
    if comparison["same"]:
        return f"The same: {counted(len(comparison['relations']), 'instruction')} compared"
    if first is None:
        return f"{counted(results, 'result')} differ{'s' if results == 1 else ''}"
    return _headline_of_first(first)


def _headline_of_first(first: Json) -> str:
    return f"First difference: {first['kind']}" + (f" at {first['source']}" if first["source"] else "")


def _parts(comparison: Json, command: str) -> Iterator[str]:
    yield f"<h1>{escape(headline_of(comparison))}</h1>"
    found = Counter(one["relation"] in NONE for one in comparison["relations"])
    compared = comparison.get("compared", True)
    numbers: list[tuple[int | str, str, bool]] = [
        (len(comparison["relations"]), f"instructions{' compared' if compared else ''}", False),
        (found[False], "have the values of their twins" if compared else "have a relation that is proved", False),
        (found[True], "have not", found[True] > 0 and not comparison["same"]),
    ]
    if comparison["results"]:
        several = len(comparison["results"]) > 1
        numbers.append((len(comparison["results"]), "results differ" if several else "result differs", True))
    yield counts(*numbers)
    version = installed_version("distxla")
    yield from about([("command", command), ("version", f"distxla {version}" if version else "")])
    if comparison.get("proof"):
        yield f"<p>Proved: {escape(comparison['proof'])}.</p>"
    for text in comparison["results"][:MOST_RESULTS]:
        yield f"<p>{escape(text)}</p>"
    if len(comparison["results"]) > MOST_RESULTS:
        yield f"<p>and {len(comparison['results']) - MOST_RESULTS} more</p>"
    if comparison["first"] is not None:
        yield from _first(comparison["first"])
    if comparison["relations"]:
        yield "<h2>What each value is to that of the unsharded program</h2>"
        yield from _relations(comparison)


def _first(first: Json) -> Iterator[str]:
    yield from listed_hints("What to change", [first["hint"]])
    yield "<h2>Where the values differ first</h2>"
    yield from table(
        [
            {
                "instruction": first["instruction"],
                "iteration": "" if first["iteration"] is None else str(first["iteration"]),
                "source": first["source"] or "",
                "op name": first["op_name"],
                "taken for something else by": " ".join(filter(None, (first["use"], first["use_source"]))),
            }
        ]
    )
    named = f"{counted(len(first['devices']), 'device')}: {listed(first['devices'])}"
    yield f'<p class="note">on {escape(named)}</p>'
    values = [{"program": "sharded", "value": first["sharded"]}]
    if first["unsharded"] is not None:
        values.append({"program": "unsharded", "value": first["unsharded"]})
    yield from table(values)
    for source in dict.fromkeys(filter(None, (first["source"], first["use_source"]))):
        yield from source_excerpt(source)


def _relations(comparison: Json) -> Iterator[str]:
    relations, first = comparison["relations"], comparison["first"]
    names = [one["instruction"] for one in relations]
    marked = names.index(first["instruction"]) if first is not None and first["instruction"] in names else None
    place = marked or 0
    begin, end = max(0, place - MOST_BEFORE), place + (MOST_BEFORE if marked is None else MOST_AFTER)
    rows = [
        {
            "instruction": one["instruction"],
            "source": one["source"] or "",
            "its twin": one["twin"] or "",
            "is": one["relation"],
        }
        for one in relations[begin:end]
    ]
    yield from table(rows, marked=None if marked is None else marked - begin)
    left = len(relations) - len(rows)
    if left > 0:
        yield f'<p class="note">and {counted(left, "instruction")} more, in the order of execution</p>'


__all__ = ["fragment", "fragment_of_first", "headline_of", "page"]
