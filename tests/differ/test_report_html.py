"""The page of a comparison, and what notebooks show of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.differ.report import Comparison, FirstDifference, ValueRelation
from tests.browser import SCHEMES, WIDTHS, first_row, in_a_cell, measured, picture

HINT = (
    "dot_general.17 (/home/user/train/block.py:10) has partial sums over 'model', and max.3 uses each as the whole: "
    "a psum over 'model' is missing"
)


def first(devices: int, source: str = "/home/user/train/block.py:10") -> FirstDifference:
    return FirstDifference(
        "dot_general.17",
        "jit(step)/jit(main)/shard_map/dot_general",
        source,
        3,
        tuple(range(devices)),
        "float32[4, 8]: -0.12345678 at [0, 3] on device 0",
        "float32[4, 8]: 1.2345678 at [0, 3]",
        "not reduced",
        HINT,
        "max.3",
        "/home/user/train/block.py:12",
    )


def made(devices: int, instructions: int = 200) -> Comparison:
    """The 101st instruction is the first with other values."""
    relations = [
        ValueRelation(f"add.{k}", f"add.{k}", "block.py:9", "the same on all devices") for k in range(instructions)
    ]
    relations[100] = ValueRelation("dot_general.17", "dot_general.4", "/home/user/train/block.py:10", "none")
    relations[101] = ValueRelation("max.<b>", None, None, "no twin")
    return Comparison(False, first(devices), (f"out0 differs on {devices} of {devices} devices",), tuple(relations))


def test_a_difference() -> None:
    text = made(4).page("distxla differ a.hlo b.hlo --report page.html")
    assert "<h1>First difference: not reduced at /home/user/train/block.py:10</h1>" in text
    assert "<li><b>200</b>instructions compared</li><li><b>198</b>have the values of their twins</li>" in text
    assert '<li class="bad"><b>2</b>have not</li><li class="bad"><b>1</b>result differs</li>' in text
    assert "<dt>command</dt><dd>distxla differ a.hlo b.hlo --report page.html</dd>" in text
    assert "a psum over &#x27;model&#x27; is missing" in text
    assert "on 4 devices: 0-3</p>" in text
    assert '<td class="first" data-name="instruction">dot_general.17</td>' in text
    assert "max.&lt;b&gt;" in text
    assert "and 152 instructions more" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_no_difference() -> None:
    same = Comparison(True, None, (), (ValueRelation("add.1", "add.2", None, "the same"),))
    text = same.page()
    assert "<h1>The same: 1 instruction compared</h1>" in text
    assert "What to change" not in text
    assert 'class="first"' not in text.split("</style>")[1]


def test_a_proof() -> None:
    relations = tuple(ValueRelation(f"add.{k}", None, None, text) for k, text in enumerate(["the same", "no twin"]))
    proved = Comparison(True, None, (), relations, proof="2 results are equal for all inputs", compared=False).page()
    assert "<h1>The same for all inputs: 2 instructions, nothing was run</h1>" in proved
    assert "<li><b>1</b>have a relation that is proved</li>" in proved
    assert "<p>Proved: 2 results are equal for all inputs.</p>" in proved
    compared = Comparison(True, None, (), relations, proof="2 results are equal for all inputs").page()
    assert "<h1>The same: 2 instructions compared</h1>" in compared
    assert "<p>Proved: 2 results are equal for all inputs.</p>" in compared


def test_a_difference_without_a_place() -> None:
    assert "<h1>2 results differ</h1>" in Comparison(False, None, ("out0", "out1"), ()).page()


def test_the_line_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text("".join(f"line <{k}>\n" for k in range(1, 20)))
    found = Comparison(False, first(4, f"{tmp_path}/block.py:10"), ("out0",), ())
    assert '<mark><span class="at">10</span>  line &lt;10&gt;</mark>' in found.page()


def test_in_a_notebook() -> None:
    found = made(4)
    shown = in_a_cell(found)
    assert shown.split("</style>")[1].removesuffix("\n</div>") in found.page()
    only = in_a_cell(found.first)
    assert "<h1>First difference: not reduced at" in only
    assert "instructions compared" not in only


PAGES = {f"difference {count}": made(count).page("distxla differ a.hlo b.hlo") for count in (4, 32, 256)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_clipped_or_covered(scheme: str, tmp_path: Path) -> None:
    found = measured(PAGES, scheme, tmp_path)
    assert set(found) == {f"{name} {width}" for name in PAGES for width in WIDTHS}
    assert {name: one["faults"] for name, one in found.items() if one["faults"]} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_its_picture(width: int, tmp_path: Path) -> None:
    assert first_row(picture(PAGES["difference 256"], width, 900, "light", tmp_path))[:2] == (width, 900)
