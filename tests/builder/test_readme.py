"""The README's program runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import distxla as dx

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.cluster
def test_the_worked_example(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block for block in BLOCKS if "XlaBuilder" in block]
    exec(compile(program, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) == pytest.approx(3 / np.sqrt(14000), rel=1e-6)


def test_the_message_that_it_shows() -> None:
    b = dx.XlaBuilder("step")
    x, bias = b.parameter(0, "f32[4,6]"), b.parameter(1, "f32[3]")
    with pytest.raises(dx.VerificationError) as caught:
        x + bias
    said = str(caught.value).split(": ", 1)[1].splitlines()[0]
    assert said in README
