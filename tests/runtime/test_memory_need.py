"""What one device can't hold is refused before anything starts, with what is needed and what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

import distxla as dx
from distxla.runtime.memory_need import require_memory
from tests.cli.test_main import call

MODULE = dx.parse(
    """HloModule wide

ENTRY e {
  x = f32[1024] parameter(0)
  y = f32[1024,1024] broadcast(x), dimensions={0}
  ROOT t = (f32[1024,1024], f32[1024]) tuple(y, x)
}
"""
)
NEED = 4096 + (4 << 20) + 4096


@pytest.mark.parametrize(("temporaries", "limit"), [(0, NEED), (100, NEED + 100), (0, 1 << 62)])
def test_what_fits_is_taken(temporaries: int, limit: int) -> None:
    require_memory(MODULE, temporaries, limit)


@pytest.mark.parametrize(
    ("temporaries", "limit", "message"),
    [
        (0, NEED - 1, "needs 4.01 MiB on each device (4 KiB of arguments, 4 MiB of results); a device has 4.01 MiB"),
        (0, 1023, "needs 4.01 MiB on each device (4 KiB of arguments, 4 MiB of results); a device has 1023 B"),
        (
            1 << 40,
            1 << 30,
            "needs 1 TiB on each device (4 KiB of arguments, 4 MiB of results, 1 TiB of temporaries); "
            "a device has 1 GiB",
        ),
    ],
)
def test_what_does_not_fit_is_refused(temporaries: int, limit: int, message: str) -> None:
    with pytest.raises(dx.OutOfMemoryError) as raised:
        require_memory(MODULE, temporaries, limit)
    assert raised.value.message == f"wide {message}"
    line = None if temporaries else 6  # no one line is to blame for temporaries
    assert (raised.value.location and raised.value.location.line) == line


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_command_line_refuses_before_it_starts_anything(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "big.hlo"
    path.write_text(
        "HloModule big\nENTRY e {\n  x = f32[] parameter(0)\n"
        "  ROOT y = f32[262144,262144] broadcast(x), dimensions={}\n}\n"
    )
    status, out, errors = call(capsys, "run", str(path), "--backend", backend)
    assert (status, out) == (2, "")
    assert errors.startswith(
        f"{path}:4:8: error: memory: big needs 256 GiB on each device (4 B of arguments, 256 GiB of "
    )
