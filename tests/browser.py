"""Pages in a browser: a headless Chromium, driven by its command line.

`apt-get install chromium-headless-shell` brings one; DISTXLA_TEST_BROWSER names another. Tests are skipped without one.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTHS = (1300, 400)
SCHEMES = ("light", "dark")
SECONDS = 120
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# each page is in a frame of each width; what is clipped, covered or out of the page is listed
MEASURE = """
function faults(frame) {
  const found = [], page = frame.contentDocument, root = page.documentElement, wide = root.clientWidth;
  const say = (what, at) => found.push(what + ": " + at.outerHTML.slice(0, 160));
  if (root.scrollWidth > wide) found.push("the page is " + root.scrollWidth + " wide");
  for (const at of page.body.querySelectorAll("*")) {
    const box = at.getBoundingClientRect();
    if (!box.width || !box.height || at.closest("defs")) continue;
    if (box.left < -0.5 || box.right > wide + 0.5) say("outside of the page", at);
    if (at.tagName === "text") {
      const around = at.closest("svg").getBoundingClientRect();
      if (box.left < around.left || box.right > around.right || box.bottom > around.bottom) say("outside", at);
      const card = at.parentNode.querySelector("rect").getBoundingClientRect();
      if (box.left < card.left || box.right > card.right) say("outside of its card", at);
    }
    const style = frame.contentWindow.getComputedStyle(at);
    const cuts = ["hidden", "scroll", "auto", "clip"].includes(style.overflowX) && !at.closest("svg");
    if (cuts && !at.matches(".track") && at.scrollWidth > at.clientWidth + 1) say("clipped", at);
  }
  const texts = [...page.querySelectorAll("text, .axis .track span, .who, .share")];
  const boxes = texts.filter(t => t.textContent).map(t => [t, t.getBoundingClientRect()]).filter(b => b[1].width);
  for (const [one, a] of boxes)
    for (const [other, b] of boxes)
      if (one !== other && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
        say("covered by " + other.textContent, one);
  return found;
}
addEventListener("load", () => {
  const answer = {};
  for (const frame of document.querySelectorAll("iframe"))
    answer[frame.name] = {
      faults: faults(frame),
      paper: frame.contentWindow.getComputedStyle(frame.contentDocument.documentElement).backgroundColor,
      pictures: [...frame.contentDocument.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width).length,
    };
  document.body.insertAdjacentHTML("beforeend", "<pre id=answer></pre>");
  document.getElementById("answer").textContent = JSON.stringify(answer);
});
"""


def browser() -> str:
    """The path of a Chromium; skips the test where there is none."""
    given = os.environ.get("DISTXLA_TEST_BROWSER")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium-headless-shell")
    return found


def in_a_cell(shown: object) -> str:
    """What a notebook shows of an object, which it asks for by this name."""
    found = getattr(shown, "_repr_" + "html_")()
    assert isinstance(found, str)
    return found


def _called(folder: Path, scheme: str, *arguments: str) -> str:
    """What a run of the browser prints. scheme: light or dark."""
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(pages: Mapping[str, str], scheme: str, folder: Path) -> dict[str, dict[str, Any]]:
    """By `name width`: faults of the layout, the colour of the paper, how many pictures can be seen."""
    frames = []
    for name, page in pages.items():
        free = page.replace(html.escape(POLICY), POLICY)
        for width in WIDTHS:
            title = html.escape(f"{name} {width}")
            frames.append(
                f'<iframe name="{title}" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(free)}">'
                "</iframe>"
            )
    path = folder / f"{scheme}.html"
    path.write_text(f"<!DOCTYPE html><body><script>{MEASURE}</script>{''.join(frames)}</body>", encoding="utf-8")
    printed = _called(folder, scheme, "--virtual-time-budget=60000", "--dump-dom", path.as_uri())
    answer = html.unescape(printed.rpartition('<pre id="answer">')[2].partition("</pre>")[0])
    found: dict[str, dict[str, Any]] = json.loads(answer)
    return found


def picture(page: str, width: int, height: int, scheme: str, folder: Path) -> Path:
    """A screenshot of a page, as a PNG."""
    source, target = folder / "page.html", folder / f"{width}-{scheme}.png"
    source.write_text(page, encoding="utf-8")
    _called(folder, scheme, f"--window-size={width},{height}", f"--screenshot={target}", source.as_uri())
    return target


def first_row(png: Path) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Width, height, and the colours of the uppermost pixels."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert (depth, kind) in ((8, 2), (8, 6))
    size, place, packed = (3 if kind == 2 else 4), 8, b""
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            packed += data[place + 8 : place + 8 + length]
        place += 12 + length
    row = bytearray(zlib.decompressobj().decompress(packed, 1 + width * size))
    filtering, row = row[0], row[1:]
    if filtering in (1, 4):  # in the first row both add the pixel to the left
        for k in range(size, len(row)):
            row[k] = (row[k] + row[k - size]) & 255
    return width, height, [(row[k], row[k + 1], row[k + 2]) for k in range(0, len(row), size)]
