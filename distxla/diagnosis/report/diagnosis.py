"""Why devices can't go on: the same whether `check`, the reference or the cluster has found it."""

from __future__ import annotations

from typing import Any

from distxla.diagnosis.facts.findings import Findings
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Diagnosis(Findings):
    """The findings about devices that can't go on, and the forms in which they are shown.

    Each form is imported when it is asked for, since a command without a failure starts without them.
    """

    def __str__(self) -> str:
        """The summary and all lines."""
        return f"{self.headline}\n{self.text()}".rstrip("\n")

    def __repr__(self) -> str:
        return f"Diagnosis({self.kind}: {self.summary})"

    def text(self) -> str:
        """Lines, without the summary."""
        from distxla.diagnosis.report.text import text

        return text(self)

    def as_json(self) -> dict[str, Any]:
        """Objects of JSON: numbers, strings, lists, dictionaries."""
        from distxla.diagnosis.report.json import as_json

        return as_json(self)

    def page(self, command: str = "") -> str:
        """One self-contained HTML page: the wait-for graph, the lines of the programs, timelines up to the end.

        command: the one that has found it, to be told there; "" for none.
        """
        from distxla.diagnosis.report.html import page

        return page(self, command)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from distxla.diagnosis.report.html import fragment

        return fragment(self)
