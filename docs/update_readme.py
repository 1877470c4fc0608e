"""Writes the op table into README.md, between its markers. `make ops-table` runs it, a test compares."""

from __future__ import annotations

from pathlib import Path

from distxla.ops.documentation import markdown_table

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- ops: begin -->\n", "<!-- ops: end -->"


def updated(text: str) -> str:
    """README's text with the table that the op classes give."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN.strip()} … {END}")
    return f"{head}{begin}{markdown_table()}{end}{tail}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text()))
