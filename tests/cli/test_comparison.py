"""What counts as a difference, and what is printed about it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distxla.cli.comparison import compare, lines
from distxla.ir.element_type import BF16, C64, F32, PRED, S32, U64, ElementType

NAN, INF = np.nan, np.inf
CASES = [
    (F32, [1.0, NAN, INF], [1.0, NAN, INF], True),
    (F32, [-0.0], [0.0], True),
    (F32, [1.0, 1e-7], [1.0, 0.0], True),  # tiny beside the leaf's largest value
    (F32, [1e-7], [2e-7], False),
    (F32, [1.001], [1.0], False),
    (F32, [NAN], [1.0], False),
    (F32, [1.0], [NAN], False),
    (F32, [INF], [-INF], False),
    (F32, [3e38], [INF], False),
    (BF16, [1.01], [1.0], True),
    (C64, [1 + 1j], [1 - 1j], False),
    (S32, [1, 2], [1, 3], False),
    (U64, [2**63 + 1], [2**63], False),
    (PRED, [True], [False], False),
    (F32, [], [], True),
]


@pytest.mark.parametrize(("element", "got", "wanted", "fits"), CASES)
def test_what_fits(element: ElementType, got: list, wanted: list, fits: bool) -> None:
    found = compare(np.array(got, element.dtype), np.array(wanted, element.dtype), element, leaf=0, device=0)
    assert found.fits is fits
    assert found.size == len(wanted)


def test_a_given_tolerance_replaces_the_types_own_but_not_for_integers() -> None:
    a, b = np.array([1.05], np.float32), np.array([1.0], np.float32)
    assert compare(a, b, F32, leaf=0, device=0, tolerance=0.1).fits
    i, j = np.array([100], np.int32), np.array([101], np.int32)
    assert not compare(i, j, S32, leaf=0, device=0, tolerance=0.1).fits


def test_the_worst_element_is_shown() -> None:
    wanted = np.ones((2, 3), np.float32)
    got = wanted.copy()
    got[0, 1], got[1, 2] = 1.5, 3
    found = compare(got, wanted, F32, leaf=1, device=4)
    assert (found.differing, found.at, found.largest) == (2, (1, 2), 2.0)
    printed = "\n".join(lines([found], "expected.npz"))
    assert "differs from expected.npz in 1 of 1 array" in printed
    assert "2/6" in printed
    assert "[1, 2]: 3.0 instead of 1.0" in printed


def test_agreement_is_one_line() -> None:
    same = np.ones(3, ml_dtypes.bfloat16)
    (line,) = lines([compare(same, same, BF16, leaf=0, device=d) for d in range(8)], "the reference")
    assert line.startswith("agrees with the reference within tolerance: 8 arrays, 1 leaf on 8 devices; ")


def test_devices_with_the_same_difference_share_a_row() -> None:
    right = np.ones(4, np.float32)
    wrong, other = right + np.float32(1), right * np.float32(3)
    found = [
        compare(array, right, F32, leaf=k, device=d, label=label)
        for k, label in enumerate((None, "params['b1']"))
        for d, array in enumerate([right, wrong, wrong, wrong, other, wrong])
    ]
    first, head, *rows = lines(found, "the reference")
    assert first == "differs from the reference in 10 of 12 arrays"
    assert head.index("device") + len("device") == rows[0].index("1-3, 5") + len("1-3, 5")
    assert [line.split("  ")[1].strip() for line in rows] == ["out0", "out0", "params['b1'] 1-3, 5 f32", "params['b1']"]
    assert [line.rpartition(": ")[2] for line in rows] == ["2.0 instead of 1.0", "3.0 instead of 1.0"] * 2
