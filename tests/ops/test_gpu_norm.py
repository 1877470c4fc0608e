"""cuDNN's layer normalisation in HLO of XLA's GPU backend, by both executors against formulas in f64."""

from __future__ import annotations

import pytest

from tests.ops.gpu_norm_cases import CASES, NORM, config
from tests.ops.library_call import LibraryCall, assert_refused, assert_xla_reads, check


@pytest.mark.parametrize("name", CASES)
def test_norms(name: str) -> None:
    call, answer = CASES[name]
    check(call, answer, ulps=16)


REFUSED: dict[str, tuple[LibraryCall, str]] = {
    "an unknown kind": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("BATCH")),
        "kind='BATCH', which is not one of LAYER_FWD_INFER",
    ),
    "an unknown field": (
        LibraryCall(
            NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("LAYER_FWD_INFER", groups=2)
        ),
        "does not know the field cudnn_norm_backend_config.groups",
    ),
    "a scale that doesn't fit": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,3]", "f32[1,3]"], config("LAYER_FWD_INFER")),
        "the scale f32[1,3] does not fit f32[3,4]",
    ),
    "statistics that nobody gives": (
        LibraryCall(NORM, ["f32[3,4]", "u8[0]"], ["f32[3,4]", "f32[1,4]", "f32[1,4]"], config("LAYER_FWD_TRAIN")),
        "gives 3 arrays, the text says (f32[3,4], u8[0])",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


@pytest.mark.parametrize("name", CASES)
def test_xla_reads_the_calls(name: str) -> None:
    assert_xla_reads(CASES[name][0])
