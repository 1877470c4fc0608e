"""The code blocks of a page of the documentation: what is run, what is saved as a file, what is shown output.

| block | what a test does with it |
|---|---|
| below a line that ends in a file name in backticks and a colon | saves it under that name, in the page's folder |
| `python` | runs it; all such blocks of a page share their names. One that sets `os.environ` runs in a new process |
| `sh` | runs each command; `# exit status 3` says how one ends that doesn't end with 0 |
| `console` | runs the commands behind `$` and compares what they print with the lines below them |
| `text` directly below one of these | compares it with what that block printed, or raised |
| `python` or `sh` in an HTML comment `<!-- hidden: python … -->` | runs it; of a new process it is the beginning |

In shown output `…` stands for anything; times, checksums and digits beyond the third may differ.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sybil import Document, Region, Sybil
from sybil.example import Example
from sybil.parsers.abstract.lexers import LexerCollection
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.exists()]

FILE = re.compile(r"`([\w.]+\.\w+)`:$")
NOT_RUN = re.compile(r"^\*Not run by the tests: (.+)\.\*$")
WHERE_INSTALLED = re.compile(r"^\*Run by the tests where (\w+) is installed\.\*$")


@dataclass(frozen=True)
class Block:
    """example: for line numbers.  above: the last line of prose above.  follows: directly below another block.
    hidden: in an HTML comment."""

    example: Example
    language: str
    source: str
    above: str
    follows: bool
    hidden: bool

    @property
    def place(self) -> str:
        return f"{Path(self.example.path).relative_to(ROOT)}:{self.example.line}"

    @property
    def file(self) -> str | None:
        found = FILE.search(self.above)
        return found[1] if found else None

    @property
    def not_run(self) -> str | None:
        """Why the tests can't run it."""
        found = NOT_RUN.match(self.above)
        return found[1] if found else None

    @property
    def needs(self) -> str | None:
        """The module without which the tests don't run it."""
        found = WHERE_INSTALLED.match(self.above)
        return found[1] if found else None


def _regions(document: Document) -> Iterable[Region]:
    lexers = LexerCollection(
        [
            FencedCodeBlockLexer(r"\w*", mapping={"language": "arguments", "source": "source"}),
            DirectiveInHTMLCommentLexer("hidden", r"\w+"),
        ]
    )
    for region in lexers(document):
        region.parsed = region.lexemes["source"]
        yield region


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """All blocks of a page, in order; a marker above one holds for those that directly follow it, too."""
    return tuple(_blocks(Sybil([_regions]).parse(page)))


def _blocks(document: Document) -> Iterator[Block]:
    end, above = 0, ""
    for example in document.examples():
        between = document.text[end : example.start].strip()
        follows = end > 0 and not between
        above = above if follows else (between.splitlines() or [""])[-1].strip()
        lexemes = example.region.lexemes
        source = textwrap.dedent(str(example.parsed))
        yield Block(example, lexemes["arguments"], source, above, follows, "directive" in lexemes)
        end = example.end


def sessions(source: str) -> Iterator[tuple[str, str]]:
    """(command, shown output) of a `console` block."""
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def commands(source: str) -> list[str]:
    """The commands of an `sh` block."""
    lines = source.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def assert_agrees(shown: str, printed: str, place: str) -> None:
    """The comparison of shown output with what was printed."""
    pattern = ".*?".join(re.escape(_settled(part)) for part in shown.split("…"))
    assert re.fullmatch(pattern, _settled(printed), re.DOTALL), (
        f"{place} shows\n{shown}\nand this is printed:\n{printed}"
    )


def _settled(text: str) -> str:
    """Without what depends on the machine, and with single blanks, however lines are wrapped."""
    text = re.sub(r"crc32 [0-9a-f]{8}", "crc32 X", text)
    text = re.sub(r"\b\d[\d.]* (ms|s|µs)(?![\w.])", "TIME", text)
    text = re.sub(r"-?\d+\.\d{4,}", lambda found: f"{float(found[0]):.3g}", text)
    return re.sub(r"\s+", " ", text).strip() if text.strip() else text.strip()
