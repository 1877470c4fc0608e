"""The place in the user's text that a message points to, and the parts of other people's text that may be shown."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A stretch of one line of a module's text, and where the metadata tells it, of the user's own program.

    file: as the user named it (`<string>` for parsed text).  line, column: from 1.  end_column: exclusive, at least
    column + 1.  text: the whole source line, for the caret.  frame: `model.py:36:28 in loss`, from metadata, or None.
    """

    file: str
    line: int
    column: int
    end_column: int
    text: str = ""
    frame: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def shown(self) -> list[str]:
        """The source line with a caret, and the user's own frame, as lines to put below a message."""
        lines = []
        if self.text:
            text, column, end = _excerpt(self.text, self.column, self.end_column)
            lines += [f"    {text}", f"    {' ' * (column - 1)}{'^' * max(1, end - column)}"]
        if self.frame:
            lines.append(f"    from {self.frame}")
        return lines


def printable(text: str) -> str:
    """The text with escapes for control characters: names, paths and frames come from other people's files."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _excerpt(text: str, column: int, end: int, width: int = 160) -> tuple[str, int, int]:
    """Cut a long source line to `width` characters around the caret; control characters become spaces."""
    start = 0
    if len(text) > width and column > width // 2:
        start = column - width // 2
    cut = "".join(c if c.isprintable() else " " for c in text[start : start + width])
    column, end = column - start, min(end - start, len(cut) + 1)
    if start:
        cut = "..." + cut[3:]
    return cut.rstrip(), column, max(end, column + 1)
