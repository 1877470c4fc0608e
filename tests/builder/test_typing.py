"""What an editor and a type checker see of the builder through `import distxla as dx`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import distxla as dx

USER = """
import numpy as np
import distxla as dx

b = dx.XlaBuilder("typed", replica_count=2)
x = b.parameter(0, "f32[2]", "x")
reveal_type(x)
reveal_type(x + 1)
reveal_type(np.float32(1) * x == [1, 2])
reveal_type(b.reshape(x, [1, 2]))
reveal_type(b.reshape(x, [0], [1, 2]))
reveal_type(b.clamp(0, x, 1))
reveal_type(b.conditional(x[0], x, lambda p: p, x, lambda p: p))
reveal_type(b.conditional(x[0], [lambda p: p], [x]))
reveal_type(b.all_gather(x, all_gather_dim=0, shard_count=2))
reveal_type(b.build())
b.transpose(x)  # an argument is missing
b.no_such_operation(x)
"""
# Of the package the builder and what its signatures name: the rest takes as long as all this.
CONFIG = """
[mypy]
strict = true
[mypy-distxla,distxla.builder.*,distxla.ir.*,distxla.errors,distxla.location]
follow_imports = normal
[mypy-distxla.*,jax.*,jaxlib.*,ray.*,llvmlite.*,scipy.*]
follow_imports = skip
"""


def test_the_package_is_typed() -> None:
    assert (Path(dx.__file__).parent / "py.typed").exists()
    assert {"XlaBuilder", "XlaOp", "Shape", "DotDimensionNumbers"} <= set(dir(dx))


@pytest.mark.slow
def test_a_type_checker_knows_every_method(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    root = Path(__file__).parents[2]
    kept = root / ".mypy_cache" / "of_users"  # what `make check` keeps has other options
    files = ("--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(kept), str(tmp_path / "user.py"))
    command = [sys.executable, "-m", "mypy", "--python-version", "3.11", *files]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=250, check=False)
    said = [line.split("user.py:", 1)[1] for line in run.stdout.splitlines() if "user.py:" in line]
    revealed = [line.split('"')[1] for line in said if "Revealed type" in line]
    assert revealed == ["distxla.builder.xla_op.XlaOp"] * 9 + ["distxla.ir.module.Module"], run.stdout
    errors = [line for line in said if " error: " in line]
    assert len(errors) == 2, run.stdout
    assert 'Missing positional argument "permutation"' in errors[0]
    assert '"XlaBuilder" has no attribute "no_such_operation"' in errors[1]
