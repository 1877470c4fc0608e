"""Whether the examples of the documentation compute the gradients of one device.

An example with gradients is run three times, as it stands but for its optimiser, which is plain descent: Adam hides
the size of a gradient. Once on its mesh, once on a mesh of one device, and there once more with doubled gradients.
Numbers that the first two runs end with have to be equal, and the third has to differ: else nothing was compared.
`python -m tests.documentation.gradients FILE` compares one that needs a process of its own.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documentation.blocks import PAGES, ROOT, blocks

# functions of JAX, and methods of others, that differentiate
DIFFERENTIATE = {"grad", "value_and_grad", "vjp", "jvp", "linearize", "linear_transpose", "jacrev", "jacfwd"}
DIFFERENTIATE |= {"jacobian", "hessian", "backward", "GradientTape"}
WRONG = {"docs/guide/wrong_numbers.md"}  # reports of wrong gradients, which the pages compare themselves
# relative to an array's largest number: float32 that is added up in another order; what a doubled gradient exceeds
EQUAL, OTHER = 1e-4, 1e-2


@dataclass(frozen=True)
class Example:
    """name: a file, without the root.  source: of Python.  in_process: it sets variables that JAX reads once."""

    name: str
    source: str
    in_process: bool = False

    def __str__(self) -> str:
        return self.name


def has_gradients(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else {name}
        if names & DIFFERENTIATE:
            return True
    return False


def examples() -> Iterator[Example]:
    """All with gradients: scripts, blocks that run in processes of their own, and pages up to their last gradient."""
    for script in sorted([*(ROOT / "docs").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]):
        source = script.read_text(encoding="utf-8")
        if has_gradients(source):
            yield Example(str(script.relative_to(ROOT)), source)
    for page in PAGES:
        if str(page.relative_to(ROOT)) in WRONG:
            continue
        yield from _examples_of_page(page)


def _examples_of_page(page: Path) -> Iterator[Example]:
    shared, end = "", 0
    for block in blocks(page):
        if block.language != "python":
            continue
        differentiates = has_gradients(block.source)
        if "os.environ" in block.source:
            if differentiates:
                yield Example(block.place, block.source, in_process=True)
        elif differentiates or (not block.not_run and not block.needs and not block.file):
            shared += block.source
            end = len(shared) if differentiates else end
    if end:
        yield Example(str(page.relative_to(ROOT)), shared[:end])


def compare(example: Example, cluster: Callable[..., Any] | None = None) -> None:
    """AssertionError if the example's results are not those of one device, or can't tell.

    cluster: what takes the place of `distxla.Cluster`.
    """
    cut = _run(example, cluster)
    whole = _run(example, cluster, on_one=True)
    doubled = _run(example, cluster, on_one=True, scale=2)
    assert cut.keys() == whole.keys() == doubled.keys(), f"{example}: on one device it has other results"
    assert any(_difference(whole[name], doubled[name]) > OTHER for name in whole), (
        f"{example}: doubled gradients change none of its results {sorted(whole)}: keep the new parameters under a "
        "name of the script, or add its optimiser to tests/documentation/gradients.py"
    )
    wrong = [name for name in whole if not _difference(whole[name], cut[name]) < EQUAL]
    are_doubled = all(_difference(doubled[name], cut[name]) < EQUAL for name in wrong)
    assert not wrong, f"{example}: {', '.join(wrong)}: not as on one device, but " + (
        "as with doubled gradients" if are_doubled else f"off by {_difference(whole[wrong[-1]], cut[wrong[-1]]):.2g}"
    )


def _difference(a: Any, b: Any) -> float:
    """The largest, as a share of the largest number of a."""
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) or 1))


def _run(
    example: Example, cluster: Callable[..., Any] | None, *, on_one: bool = False, scale: float = 1
) -> dict[str, Any]:
    """The numbers that the example's names stand for in the end."""
    with pytest.MonkeyPatch.context() as patch:
        _descend(patch)
        sizes = _make_small_meshes(patch) if on_one else []
        if scale != 1:
            _scale_gradients(patch, scale)
        if cluster is not None:
            patch.setattr("distxla.Cluster", cluster)
        names = {"__name__": "__main__", "__file__": str(ROOT / example.name)}
        exec(compile(example.source, names["__file__"], "exec"), names)
        assert not on_one or max(sizes, default=1) > 1, f"{example}: no mesh of several devices is made by `make_mesh`"
        return _numbers({name: value for name, value in names.items() if not name.startswith("_")})


def _numbers(names: dict[str, Any]) -> dict[str, Any]:
    import jax

    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(names)[0]:
        is_gone = getattr(leaf, "is_deleted", bool)()
        if isinstance(leaf, float) or (np.issubdtype(getattr(leaf, "dtype", int), np.inexact) and not is_gone):
            found[jax.tree_util.keystr(path)] = np.array(leaf, np.float64)
    return found


def _descend(patch: pytest.MonkeyPatch) -> None:
    """All optimisers of optax are SGD."""
    if importlib.util.find_spec("optax") is None:
        return
    import optax

    sgd = optax.sgd
    for name, member in list(vars(optax).items()):
        if inspect.isfunction(member) and "learning_rate" in inspect.signature(member).parameters:
            patch.setattr(optax, name, lambda learning_rate, *rest, **options: sgd(learning_rate))


def _make_small_meshes(patch: pytest.MonkeyPatch) -> list[int]:
    """Meshes have one device. Returns how many they would have, once they are made."""
    import jax

    import distxla.jax as dxj

    sizes: list[int] = []

    def make(real: Callable[..., Any], shape: Sequence[int], *args: Any, **options: Any) -> Any:
        sizes.append(prod(shape))
        if real is made_by_jax:
            options["devices"] = jax.devices()[:1]
        return real((1,) * len(shape), *args, **options)

    made_by_jax = jax.make_mesh
    patch.setattr(jax, "make_mesh", partial(make, made_by_jax))
    patch.setattr(dxj, "make_mesh", partial(make, dxj.make_mesh))
    return sizes


def _scale_gradients(patch: pytest.MonkeyPatch, scale: float) -> None:
    import jax

    grad, value_and_grad = jax.grad, jax.value_and_grad

    def scaled(slopes: Any) -> Any:
        return jax.tree.map(lambda slope: scale * slope, slopes)

    def scaled_grad(function: Any, argnums: Any = 0, has_aux: bool = False, **options: Any) -> Any:
        slopes_of = grad(function, argnums, has_aux, **options)

        def found(*args: Any, **kwargs: Any) -> Any:
            slopes = slopes_of(*args, **kwargs)
            return (scaled(slopes[0]), slopes[1]) if has_aux else scaled(slopes)

        return found

    def scaled_value_and_grad(*args: Any, **options: Any) -> Any:
        both_of = value_and_grad(*args, **options)

        def found(*args: Any, **kwargs: Any) -> Any:
            value, slopes = both_of(*args, **kwargs)
            return value, scaled(slopes)

        return found

    patch.setattr(jax, "grad", scaled_grad)
    patch.setattr(jax, "value_and_grad", scaled_value_and_grad)


if __name__ == "__main__":
    compare(Example(sys.argv[1], Path(sys.argv[1]).read_text(encoding="utf-8")))
