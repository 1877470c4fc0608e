"""The shared parts of pages and of what notebooks show: style, escaping, tables.

All of it fits from 360 pixels on: what lies beside each other on a wide page lies below each other on a narrow one. The
style asks for the width of the element that it is in, so it holds in a notebook's cell, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape as _escape

from distxla.location import printable

WIDE, NARROW = 1000, 340  # pixels of a picture; a page has one of each width, and shows the one that fits
LETTER = 6.7  # pixels of a letter in pictures

_LIGHT = """--ink: #1b1f24; --paper: #fff; --soft: #f4f5f7; --line: #d4d8dd; --red: #cf222e; --pink: #ffd7d5;
 --gold: #bf8700; --cream: #fff3c4; --grey: #57606a; --green: #1a7f37; --mint: #dafbe1; --blue: #0969da; --sky: #b6d7f5;
 --violet: #8250df;"""
_DARK = """--ink: #e6e9ed; --paper: #0d1117; --soft: #1c222b; --line: #3a424d; --red: #ff6a69; --pink: #5d1f22;
 --gold: #d4a72c; --cream: #4a3a0a; --grey: #9aa4af; --green: #4ac26b; --mint: #12401f; --blue: #4c9aff; --sky: #23486f;
 --violet: #b083f0;"""

# a notebook's own choice of colours comes before the system's
STYLE = f"""
.dx {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ .dx {{ {_DARK} }} }}
[data-jp-theme-light="true"] .dx {{ color-scheme: light; {_LIGHT} }}
[data-jp-theme-light="false"] .dx {{ color-scheme: dark; {_DARK} }}
.dx {{ font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
 container-type: inline-size; overflow-wrap: anywhere; }}
main.dx {{ margin: 2em auto; max-width: {WIDE}px; }}
.dx h1 {{ font-size: 1.6em; line-height: 1.25; margin: 0 0 .3em; }}
.dx h2 {{ font-size: 1.1em; margin: 1.8em 0 .6em; }}
.dx p.note {{ color: var(--grey); font-size: 13px; margin: .4em 0; }}
.dx pre, .dx code, .dx td, .dx dd {{ font-family: ui-monospace, monospace; font-size: 12px; }}
.dx pre {{ background: var(--soft); color: var(--ink); padding: .8em; white-space: pre-wrap; margin: .4em 0; }}
.dx pre mark {{ background: var(--pink); color: inherit; display: block; }} .dx pre .at {{ color: var(--grey); }}
.dx table {{ border-collapse: collapse; max-width: 100%; }}
.dx td, .dx th {{ border: 1px solid var(--line); padding: 2px 8px; text-align: left; vertical-align: top; }}
.dx th {{ font-size: 12px; background: var(--soft); overflow-wrap: normal; }}
.dx td.first, .dx li.first {{ background: var(--pink); font-weight: bold; }}
.dx dl.about {{ display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; margin: .8em 0; }}
.dx dl.about dt {{ color: var(--grey); font-size: 13px; }} .dx dl.about dd {{ margin: 0; padding-top: 1px; }}
.dx .counts {{ display: flex; flex-wrap: wrap; gap: 8px; margin: .8em 0; padding: 0; list-style: none; }}
.dx .counts li {{ border: 1px solid var(--line); border-radius: 6px; padding: .3em .8em; background: var(--soft);
 color: var(--grey); font-size: 12px; margin: 0; }}
.dx .counts b {{ display: block; font-size: 20px; line-height: 1.2; color: var(--ink); }}
.dx .counts li.bad b {{ color: var(--red); }}
.dx .hints {{ background: var(--mint); border-left: 4px solid var(--green); padding: .5em 1em; margin: .8em 0; }}
.dx .hints ul {{ margin: .2em 0; padding-left: 1.2em; }}
.dx .chips {{ display: flex; flex-wrap: wrap; gap: 3px; margin: 0 0 .5em; padding: 0; list-style: none; }}
.dx .chips li {{ border: 1px solid var(--line); padding: 0 6px; margin: 0; font: 12px/1.6 ui-monospace, monospace; }}
.dx .chips li.who {{ border: 0; padding-left: 0; font-weight: bold; width: 100%; }}
.dx svg {{ display: block; margin: 0 auto; max-width: 100%; }}
.dx svg text {{ font: 11px ui-monospace, monospace; fill: var(--ink); }} .dx svg text.name {{ font-weight: bold; }}
.dx svg.narrow {{ display: none; }}
.dx .cycle {{ stroke: var(--red); fill: var(--pink); }} .dx .behind {{ stroke: var(--gold); fill: var(--cream); }}
.dx .over {{ stroke: var(--grey); fill: var(--line); stroke-dasharray: 3 2; }}
.dx .free {{ stroke: var(--green); fill: var(--mint); }}
.dx path.edge {{ stroke: var(--grey); stroke-width: 1.3; fill: none; }}
.dx path.hot {{ stroke: var(--red); stroke-width: 2.4; }}
.dx .head {{ fill: var(--grey); }} .dx .hothead {{ fill: var(--red); }}
.dx .line {{ display: grid; grid-template-columns: 118px 1fr; align-items: center; font-size: 11px;
 line-height: 15px; }}
.dx .line.told {{ grid-template-columns: 118px 1fr 70px; }}
.dx .line .who {{ font-family: ui-monospace, monospace; white-space: nowrap; overflow: hidden; }}
.dx .line .share {{ text-align: right; color: var(--grey); white-space: nowrap; }}
.dx .thin .line .who {{ overflow: visible; }}
.dx .track {{ position: relative; height: 13px; margin: 1px 0; border-bottom: 1px solid var(--line);
 overflow: hidden; }}
.dx .thin .track {{ height: 7px; margin: 0; }} .dx .thin .line {{ line-height: 8px; }}
.dx .track i {{ position: absolute; top: 0; bottom: 0; min-width: 1.5px; overflow: hidden; white-space: nowrap;
 font: 11px/13px ui-monospace, monospace; color: var(--paper); text-indent: 4px; }}
.dx .track i.apart {{ box-shadow: inset 1px 0 var(--paper); }}
.dx .track i.tick {{ min-width: 0; border-left: 1px dashed var(--line); }}
.dx .track i.break {{ width: 5px; margin-left: -3px; background: var(--paper); border: solid var(--grey);
 border-width: 0 1px; }}
.dx .track i.top {{ top: auto; height: 3px; }}
.dx .axis .track {{ height: 16px; border: 0; overflow: visible; color: var(--grey); }}
.dx .axis .track span {{ position: absolute; white-space: nowrap; font: 11px ui-monospace, monospace; }}
.dx .computed {{ background: var(--green); }} .dx .did {{ background: var(--blue); }}
.dx .waited {{ background: var(--sky); }} .dx .stuck {{ background: var(--red); }}
.dx .critical {{ background: var(--violet); }}
.dx .key {{ display: inline-block; width: .8em; height: .8em; border: 2px solid; border-radius: 3px; margin: 0 .3em 0 0;
 vertical-align: -1px; }}
.dx .meaning {{ margin-right: 1em; display: inline-block; }}
.dx .key.cycle {{ border-color: var(--red); background: var(--pink); }}
.dx .key.behind {{ border-color: var(--gold); background: var(--cream); }}
.dx .key.over {{ border: 2px dashed var(--grey); background: var(--line); }}
.dx .key.free {{ border-color: var(--green); background: var(--mint); }}
.dx .key.did {{ border-color: var(--blue); }} .dx .key.computed {{ border-color: var(--green); }}
.dx .key.waited {{ border-color: var(--sky); }} .dx .key.stuck {{ border-color: var(--red); }}
.dx .key.critical {{ border-color: var(--violet); }}
@container (max-width: {WIDE - 1}px) {{ .dx svg.wide {{ display: none; }} .dx svg.narrow {{ display: block; }} }}
@container (max-width: 700px) {{
 .dx h1 {{ font-size: 1.3em; }} .dx dl.about {{ grid-template-columns: 1fr; }} .dx .axis .more {{ display: none; }}
 .dx .line, .dx .line.told {{ grid-template-columns: 1fr max-content; }} .dx .line .track {{ grid-column: 1 / -1; }}
 .dx .track i {{ font-size: 0; }}
 .dx .line .share {{ grid-row: 1; grid-column: 2; }}
 .dx table.rows, .dx table.rows tbody, .dx table.rows tr, .dx table.rows td {{ display: block; }}
 .dx table.rows tr.names {{ display: none; }} .dx table.rows tr {{ border: 1px solid var(--line); margin: 0 0 6px; }}
 .dx table.rows td {{ border: 0; }} .dx table.rows td:empty {{ display: none; }}
 .dx table.rows td::before {{ content: attr(data-name) " "; color: var(--grey); font-family: system-ui, sans-serif; }}
}}
"""


def whole_page(title: str, parts: Iterable[str]) -> str:
    """A page: no scripts, nothing from elsewhere. title: as text.  parts: of the body, as markup."""
    around = (
        "body { margin: 0; padding: 1px 14px; } html { color-scheme: light dark; background: #fff; } "
        "@media (prefers-color-scheme: dark) { html { background: #0d1117; } }"
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f'<title>{escape(title)}</title><style>{around}{STYLE}</style></head><body><main class="dx">',
        *parts,
        "</main></body></html>",
    ]
    return "\n".join(lines) + "\n"


def in_notebook(parts: Iterable[str]) -> str:
    """What a cell of a notebook shows. parts: as markup."""
    return "\n".join([f'<div class="dx"><style>{STYLE}</style>', *parts, "</div>"])


def escape(text: str) -> str:
    """Text of the page: without markup and without characters that a browser would interpret."""
    return _escape(printable(text))


def shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def legend(*kinds: tuple[str, str]) -> str:
    """kinds: classes of the style and their meanings."""
    return (
        '<p class="note">'
        + " ".join(f'<span class="meaning"><span class="key {kind}"></span>{what}</span>' for kind, what in kinds)
        + "</p>"
    )


def listed_hints(title: str, items: Iterable[object]) -> Iterator[str]:
    """A section with a list; nothing without items."""
    lines = [f"<li>{escape(str(item))}</li>" for item in items]
    if lines:
        yield f'<div class="hints"><strong>{title}</strong><ul>'
        yield from lines
        yield "</ul></div>"


def table(rows: Sequence[Mapping[str, str]], marked: int | None = None) -> Iterator[str]:
    """A table without empty columns; on a narrow page each row is a block of its own.

    rows: by column, as text.  marked: the number of a row that stands out.
    """
    columns = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    yield '<table class="rows"><tr class="names">' + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr>"
    for number, row in enumerate(rows):
        kind = ' class="first"' if number == marked else ""
        cells = "".join(f'<td{kind} data-name="{escape(name)}">{escape(row[name])}</td>' for name in columns)
        yield f"<tr>{cells}</tr>"
    yield "</table>"


def counts(*numbers: tuple[int | str, str, bool]) -> str:
    """The numbers at the head of a page: each with what it counts, and whether it is bad news."""
    items = "".join(
        f"<li{' class=' + chr(34) + 'bad' + chr(34) if is_bad else ''}><b>{escape(str(number))}</b>{escape(what)}</li>"
        for number, what, is_bad in numbers
    )
    return f'<ul class="counts">{items}</ul>'


def about(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names and what they stand for, those that are known."""
    known = [f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts if value]
    if known:
        yield '<dl class="about">' + "".join(known) + "</dl>"


__all__ = ["LETTER", "NARROW", "STYLE", "WIDE", "about", "counts", "escape", "in_notebook", "legend", "listed_hints"]
__all__ += ["shortened", "table", "whole_page"]
