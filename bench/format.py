"""Numbers as the tables print them."""

from __future__ import annotations

from math import exp, log


def geometric_mean(ratios: list[float | None]) -> float | None:
    known = [r for r in ratios if r is not None]
    return exp(sum(map(log, known)) / len(known)) if known else None


def seconds(value: float | None) -> str:
    """Three digits in µs, ms or s."""
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
