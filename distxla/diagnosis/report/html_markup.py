"""The shared parts of a diagnosis's page: its width, its style, escaping."""

from __future__ import annotations

from html import escape as _escape

from distxla.location import printable

WIDTH = 1000  # pixels of every picture
LETTER = 6.7  # pixels of a letter in pictures

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f4f5f7; --line: #d4d8dd;
 --red: #cf222e; --pink: #ffd7d5; --gold: #bf8700; --cream: #fff3c4; --grey: #57606a; --green: #1a7f37; --mint: #dafbe1;
 --blue: #218bff; --sky: #b6e3ff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #0d1117; --soft: #1c222b; --line: #3a424d;
 --red: #ff6a69; --pink: #5d1f22; --gold: #d4a72c; --cream: #4a3a0a; --grey: #9aa4af; --green: #4ac26b; --mint: #12401f;
 --blue: #388bfd; --sky: #1f4a78; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em; color: var(--ink);
 background: var(--paper); }
h1 { font-size: 1.6em; margin-bottom: .3em; } h2 { font-size: 1.1em; margin: 2em 0 .6em; }
p.note { color: var(--grey); font-size: 13px; margin: .4em 0; }
pre, code, td { font-family: ui-monospace, monospace; font-size: 12px; }
pre { background: var(--soft); padding: .8em; white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td, th { border: 1px solid var(--line); padding: 2px 8px; text-align: left; white-space: nowrap; }
th { font-size: 12px; background: var(--soft); } td.first { background: var(--pink); font-weight: bold; }
.hints { background: var(--mint); border-left: 4px solid var(--green); padding: .5em 1em; }
.hints ul { margin: .2em 0; padding-left: 1.2em; }
svg { display: block; } svg text { font: 11px ui-monospace, monospace; fill: var(--ink); } .scroll { overflow-x: auto; }
svg text.name { font-weight: bold; } svg text.on { fill: #fff; }
.cycle { stroke: var(--red); fill: var(--pink); } .behind { stroke: var(--gold); fill: var(--cream); }
.over { stroke: var(--grey); fill: var(--line); stroke-dasharray: 3 2; }
.free { stroke: var(--green); fill: var(--mint); }
path.edge { stroke: var(--grey); stroke-width: 1.3; fill: none; } path.hot { stroke: var(--red); stroke-width: 2.4; }
.head { fill: var(--grey); } .hothead { fill: var(--red); }
.did { fill: var(--blue); } .waited { fill: var(--sky); } .stuck { fill: var(--red); }
.axis { stroke: var(--line); } .tick { stroke: var(--line); stroke-dasharray: 2 3; }
.cut { stroke: var(--paper); stroke-width: 4; fill: none; } .edge-of-cut { stroke: var(--grey); fill: none; }
.key { display: inline-block; width: .8em; height: .8em; border: 2px solid; border-radius: 3px; margin: 0 .3em 0 1em;
 vertical-align: -1px; }
.key:first-child { margin-left: 0; }
.key.cycle { border-color: var(--red); background: var(--pink); }
.key.behind { border-color: var(--gold); background: var(--cream); }
.key.over { border: 2px dashed var(--grey); background: var(--line); }
.key.free { border-color: var(--green); background: var(--mint); }
.key.did { border-color: var(--blue); background: var(--blue); }
.key.waited { border-color: var(--sky); background: var(--sky); }
.key.stuck { border-color: var(--red); background: var(--red); }
"""


def escape(text: str) -> str:
    """Text of the page: without markup and without characters that a browser would interpret."""
    return _escape(printable(text))


def shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def picture(label: str, height: float) -> str:
    """The opening tags of a picture as wide as the page."""
    return (
        f'<div class="scroll"><svg role="img" aria-label="{label}" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}">'
    )


def legend(*kinds: tuple[str, str]) -> str:
    """kinds: classes of the style and their meanings."""
    return '<p class="note">' + "".join(f'<span class="key {kind}"></span>{what}' for kind, what in kinds) + "</p>"
