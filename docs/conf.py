"""How Sphinx builds the site: `make docs`. Pages are Markdown; the API reference comes from docstrings."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from distxla.cli.op_documentation import describe, table

ROOT = Path(__file__).resolve().parent.parent

project = "distxla"
author = "the distxla developers"
version = release = importlib.metadata.version("distxla")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"distxla {version}"
html_show_sourcelink = False
html_copy_source = False
# everything that a page needs comes with the site: no fonts, scripts or badges of other servers
html_theme_options = {"footer_icons": []}

# a docstring's single backticks mark code
default_role = "code"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# stand-ins for them do: no page depends on whether they are installed
autodoc_mock_imports = ["jax", "jaxlib"]
add_module_names = False

# what stands in the root of the repository, and its page here
ROOT_PAGES = {
    "README.md": "project/readme",
    "CONTRIBUTING.md": "project/contributing",
    "SECURITY.md": "project/security",
    "CHANGELOG.md": "project/changes",
}


# a docstring's entries: `address: a Ray cluster to join.  devices_per_host: how many …`, with two blanks between them
NAMES = re.compile(r"[a-z_]\w*(?:, [a-z_]\w*)*")
ENTRY = re.compile(rf"  (?={NAMES.pattern}: )")


class HloLexer(TextLexer):
    """HLO text as it is: Pygments knows no such language."""

    name = "HLO"
    aliases = ("hlo",)


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """What a page of the site shows: its file, a file of the root, or docs/ops.md and the pages of all opcodes."""
    file = next((ROOT / path for path, page in ROOT_PAGES.items() if page == name), ROOT / "docs" / f"{name}.md")
    text = file.read_text(encoding="utf-8")
    if name == "ops":
        pages = (f"### {row.opcode}\n\n```text\n{describe(row.opcode)}```\n" for row in table())
        text += "\n## All opcodes\n\n" + "\n".join(pages)
    source[0] = re.sub(r"\]\(([\w./]+\.md)", lambda link: f"]({_in_site(link[1], file, name)}", text)


def _in_site(link: str, file: Path, name: str) -> str:
    """Where a link of `file` to another page leads, from the page `name`."""
    target = (file.parent / link).resolve().relative_to(ROOT)
    page = ROOT_PAGES.get(str(target))
    there = Path(f"{page}.md") if page else target.relative_to("docs")
    return os.path.relpath(there, Path(name).parent)


def as_restructured_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """A docstring is plain text: examples are indented, and so are the further lines of a long entry."""
    lines[:] = "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", "\n".join(lines)))).split("\n")


def _paragraph(text: str) -> str:
    if text.startswith(" "):
        return "::\n\n" + text
    code_or_not = re.split(r"(`[^`]*`)", text)
    code_or_not[::2] = [re.sub(r"([|*]|_(?!\w))", r"\\\1", part) for part in code_or_not[::2]]
    text = "".join(code_or_not)
    if text.startswith("- "):
        return text
    return "\n\n".join(_entry(part) for part in ENTRY.split(re.sub(r"\n *", " ", text)))


def _entry(text: str) -> str:
    """`replicas: how many copies` as an item of a list whose name is set as code."""
    name, colon, rest = text.partition(": ")
    return f"- ``{name}``: {rest}" if colon and NAMES.fullmatch(name) else text


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_lexer("hlo", HloLexer)
    app.add_lexer("mlir", TextLexer)  # Pygments has none
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", as_restructured_text)
    return {"parallel_read_safe": True}
