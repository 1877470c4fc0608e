"""Small JAX programs of manual parallelism, right ones and wrong ones beside them; each with its unsharded form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import all_gather, all_to_all, axis_index, axis_size, pmax, pmean, pmin, ppermute, psum, psum_scatter
from jax.sharding import NamedSharding, PartitionSpec

from distxla.compiler.partitioners import device_program
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.jax.partitioner.loading import read_module
from distxla.proofs.prove import Sharded
from tests.jax.programs import mesh, numbers, stablehlo

P = PartitionSpec


@dataclass(frozen=True)
class Program:
    """A function that is manual over a mesh of `sizes`, axes x, y.  ins, outs: how arguments and results are cut."""

    function: Callable[..., Any]
    sizes: tuple[int, ...]
    args: tuple[Any, ...]
    ins: tuple[Any, ...]
    outs: Any

    def module(self, *sizes: int) -> Module:
        """Traced on a mesh of these sizes: a global module."""
        on = mesh(*sizes)

        def given(array: Any, spec: Any) -> Any:
            return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(on, spec))

        manual = jax.shard_map(self.function, mesh=on, in_specs=self.ins, out_specs=self.outs, check_vma=False)
        args = [jax.tree.map(given, a, s) for a, s in zip(self.args, self.ins, strict=True)]
        lowered = jax.jit(manual, keep_unused=True).trace(*args).lower(lowering_platforms=("cpu",))
        return read_module(stablehlo(lowered).encode(), "module.mlir")

    def sharded(self) -> Sharded:
        return sharded_of(self.module(*self.sizes), int(np.prod(self.sizes)))

    def unsharded(self) -> Module:
        module = self.module(*(1 for _ in self.sizes))
        whole = device_program(module, 1)
        return module if whole is None else whole.module


def sharded_of(module: Module, devices: int) -> Sharded:
    whole = device_program(module, devices)
    assert whole is not None
    return Sharded(whole.module, Counts(1, devices), whole.parameters, whole.results)


def line_of(function: Callable[..., Any], mark: str) -> int:
    """The number of the line of the function that ends in `# mark`."""
    lines, first = inspect.getsourcelines(function)
    return next(first + k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))


def ring(by: int = 1) -> list[tuple[int, int]]:
    n = axis_size("x")
    return [(k, (k + by) % n) for k in range(n)]


# --- right ones ------------------------------------------------------------------------------------------------------

W: Final = (numbers(8, 16), numbers(16, 8))
BATCH: Final = (numbers(16, 8), numbers(16, 8) * 2)


def loss(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)


def mlp(x: Any, a: Any, b: Any) -> Any:
    return psum(jnp.tanh(x @ a) @ b, "x")


def attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, w) for w in (q, k, v))
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / 2
    scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), scores, -1e30)
    out = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(scores), v)
    return x + psum(jnp.einsum("bqhk,hkd->bqd", out, o), "x")


def sgd(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    gradient = pmean(gradient, "x")
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), pmean(value, "x")


def adam(w: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
    gradient, t = pmean(jax.grad(loss)(w, x, y), "x"), t + 1
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient))
    gradient = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / (norm + 1e-6)), gradient)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradient)
    time = t.astype(jnp.float32)
    update = lambda m, v: (m / (1 - 0.9**time)) / (jnp.sqrt(v / (1 - 0.999**time)) + 1e-8)  # noqa: E731
    return jax.tree.map(lambda w, m, v: w - 0.01 * update(m, v), w, m, v), m, v, t


def fsdp(w: Any, x: Any, y: Any) -> Any:
    def gathered(w: Any) -> Any:
        return loss([all_gather(p, "x", tiled=True) for p in w], x, y)

    value, gradient = jax.value_and_grad(gathered)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g / axis_size("x"), w, gradient), pmean(value, "x")


def sequence(x: Any, a: Any, b: Any, g: Any) -> Any:
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g
    h = all_gather(h, "x", axis=1, tiled=True)
    return x + psum_scatter(jax.nn.gelu(h @ a) @ b, "x", scatter_dimension=1, tiled=True)


def stencil(u: Any) -> Any:
    wide = jnp.concatenate([ppermute(u[-1:], "x", ring(1)), u, ppermute(u[:1], "x", ring(-1))])
    return 0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]


def open_stencil(u: Any) -> Any:
    above = ppermute(u[-1:], "x", [(k, k + 1) for k in range(axis_size("x") - 1)])
    wide = jnp.concatenate([above, u])
    return wide[1:] - wide[:-1]


def relaxation(u: Any) -> Any:
    def body(state: Any) -> Any:
        new = stencil(state[0])
        return new, state[1] + 1, pmax(jnp.max(jnp.abs(new - state[0])), ("x", "y"))

    return jax.lax.while_loop(lambda s: (s[2] > 0.01) & (s[1] < 20), body, (u, 0, jnp.float32(1e9)))


def normalised(x: Any, g: Any, b: Any) -> Any:
    mean = pmean(x.mean(0), "x")
    variance = pmean((x * x).mean(0), "x") - mean * mean
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * g + b


def exchanged(x: Any) -> Any:
    return all_to_all(jnp.tanh(all_to_all(x, "x", 1, 0, tiled=True)), "x", 0, 1, tiled=True)


def entropy(h: Any, w: Any, y: Any) -> Any:
    scores = h @ w
    largest = pmax(scores.max(-1), "x")
    total = psum(jnp.exp(scores - largest[:, None]).sum(-1), "x")
    ids = axis_index("x") * scores.shape[1] + jnp.arange(scores.shape[1])
    target = psum(jnp.sum(jnp.where(ids[None] == y[:, None], scores, 0), -1), "x")
    return jnp.mean(jnp.log(total) + largest - target)


def layers(x: Any, a: Any, b: Any) -> Any:
    return jax.lax.scan(lambda x, w: (x + psum(jnp.tanh(x @ w[0]) @ w[1], "y"), None), x, (a, b))[0]


def branches(x: Any, p: Any) -> Any:
    return jax.lax.cond(p, lambda x: psum(x.sum(0), "x") / 16, lambda x: pmax(x.max(0), "x"), x)


def experts(x: Any, gate: Any, w: Any) -> Any:
    chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), 4)
    sent = all_to_all(jnp.einsum("te,td->etd", chosen, x), "x", 0, 1, tiled=True)
    done = jnp.tanh(jnp.einsum("etd,edf->etf", sent, w))
    return all_to_all(done, "x", 1, 0, tiled=True).sum(0)


def heads_for_rows(q: Any, k: Any, v: Any) -> Any:
    """Attention with the sequence cut outside and heads cut inside."""
    q, k, v = (all_to_all(a, "x", 2, 1, tiled=True) for a in (q, k, v))
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)
    return all_to_all(jnp.einsum("bhqk,bkhd->bqhd", scores, v), "x", 1, 2, tiled=True)


def cut_optimiser(w: Any, m: Any, x: Any) -> Any:
    gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    m = 0.9 * m + psum_scatter(gradient, "x", scatter_dimension=0, tiled=True) / axis_size("x")
    own = jax.lax.dynamic_slice_in_dim(w, axis_index("x") * m.shape[0], m.shape[0])
    return all_gather(own - 0.1 * m, "x", tiled=True), m


def pooled(x: Any, k: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(y**2)


def convolution_gradient(x: Any, k: Any) -> Any:
    return pmean(jax.grad(pooled, 1)(x, k), "x")


MLP: Final = ((4,), (numbers(4, 8), *W), (P(), P(None, "x"), P("x")), P())
CUT_ROWS: Final = ((4,), (numbers(16, 4),), (P("x"),), P("x"))
STEP: Final = ((4,), (W, *BATCH), ((P(), P()), P("x"), P("x")), ((P(), P()), P()))
TWO: Final = (P(), P())
VOCABULARY: Final = (
    (4,),
    (numbers(8, 6), numbers(6, 16), (np.arange(8) * 5 % 16).astype(np.int32)),
    (P(), P(None, "x"), P()),
    P(),
)
PROGRAMS: Final = {
    "tensor parallel layers": Program(mlp, *MLP),
    "tensor parallel attention": Program(
        attention,
        (4,),
        (numbers(2, 8, 16), *(numbers(16, 8, 4) * k for k in (1, 2, 3)), numbers(8, 4, 16)),
        (P(), *(P(None, "x"),) * 3, P("x")),
        P(),
    ),
    "data parallel step": Program(sgd, *STEP),
    "data parallel step with Adam": Program(
        adam,
        (4,),
        (W, W, tuple(np.abs(w) for w in W), np.int32(3), *BATCH),
        (TWO, TWO, TWO, P(), P("x"), P("x")),
        (TWO, TWO, TWO, P()),
    ),
    "fully sharded step": Program(fsdp, (4,), (W, *BATCH), ((P("x"), P("x")), P("x"), P("x")), ((P("x"), P("x")), P())),
    "sequence parallel layers": Program(
        sequence,
        (4,),
        (numbers(2, 16, 8), *W, numbers(8)),
        (P(None, "x"), P(None, "x"), P("x"), P()),
        P(None, "x"),
    ),
    "stencil": Program(stencil, *CUT_ROWS),
    "stencil with open ends": Program(open_stencil, *CUT_ROWS),
    "relaxation": Program(relaxation, (2, 2), (numbers(8, 8),), (P("x", "y"),), (P("x", "y"), P(), P())),
    "batch normalisation": Program(
        normalised, (4,), (numbers(16, 6), numbers(6), numbers(6)), (P("x"), P(), P()), P("x")
    ),
    "all to all and back": Program(exchanged, (4,), (numbers(16, 8),), (P("x"),), P("x")),
    "vocabulary parallel entropy": Program(entropy, *VOCABULARY),
    "scan over layers": Program(
        layers,
        (2, 2),
        (numbers(8, 8), numbers(3, 8, 16), numbers(3, 16, 8)),
        (P("x"), P(None, None, "y"), P(None, "y")),
        P("x"),
    ),
    "branches": Program(branches, (4,), (numbers(16, 4), np.bool_(True)), (P("x"), P()), P()),
    "experts": Program(experts, (4,), (numbers(16, 8), numbers(8, 4), numbers(4, 8, 8)), (P("x"), P(), P("x")), P("x")),
    "attention with heads for rows": Program(
        heads_for_rows,
        (4,),
        tuple(numbers(2, 16, 4, 4) * k for k in (1, 2, 3)),
        (P(None, "x"),) * 3,
        P(None, "x"),
    ),
    "cut optimiser": Program(
        cut_optimiser,
        (4,),
        (numbers(16, 8), numbers(16, 8) * 2, numbers(32, 16)),
        (P(), P("x"), P("x")),
        (P(), P("x")),
    ),
    "gradient of a convolution": Program(
        convolution_gradient, (4,), (numbers(8, 6, 6, 2), numbers(3, 3, 2, 4)), (P("x"), P()), P()
    ),
}


# --- wrong ones ------------------------------------------------------------------------------------------------------


def mlp_without_sum(x: Any, a: Any, b: Any) -> Any:
    return jnp.tanh(x @ a) @ b  # wrong


def mlp_summed_twice(x: Any, a: Any, b: Any) -> Any:
    return psum(psum(jnp.tanh(x @ a) @ b, "x"), "x")  # wrong


def mlp_biased_before_sum(x: Any, a: Any, b: Any) -> Any:
    return psum(jnp.tanh(x @ a) @ b + x, "x")  # wrong


def biased_mlp(x: Any, a: Any, b: Any) -> Any:
    return psum(jnp.tanh(x @ a) @ b, "x") + x


def mlp_with_early_square(x: Any, a: Any, b: Any) -> Any:
    part = jnp.tanh(x @ a) @ b
    square = part * part  # wrong
    return psum(square, "x")


def squared_mlp(x: Any, a: Any, b: Any) -> Any:
    return mlp(x, a, b) ** 2


def sgd_without_mean(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), pmean(value, "x")  # wrong


def sgd_with_sum(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    gradient = psum(gradient, "x")
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), pmean(value, "x")  # wrong


def sgd_with_summed_loss(w: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(w, x, y)
    gradient = pmean(gradient, "x")
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), psum(value, "x")  # wrong


def entropy_with_local_total(h: Any, w: Any, y: Any) -> Any:
    scores = h @ w
    largest = pmax(scores.max(-1), "x")
    total = jnp.exp(scores - largest[:, None]).sum(-1)
    ids = axis_index("x") * scores.shape[1] + jnp.arange(scores.shape[1])
    target = psum(jnp.sum(jnp.where(ids[None] == y[:, None], scores, 0), -1), "x")
    return jnp.mean(jnp.log(total) + largest - target)  # wrong


def entropy_with_local_maximum(h: Any, w: Any, y: Any) -> Any:
    scores = h @ w
    largest = scores.max(-1)
    total = psum(jnp.exp(scores - largest[:, None]).sum(-1), "x")  # wrong
    ids = axis_index("x") * scores.shape[1] + jnp.arange(scores.shape[1])
    target = psum(jnp.sum(jnp.where(ids[None] == y[:, None], scores, 0), -1), "x")
    return jnp.mean(jnp.log(total) + largest - target)


def entropy_with_wrong_offset(h: Any, w: Any, y: Any) -> Any:
    scores = h @ w
    largest = pmax(scores.max(-1), "x")
    total = psum(jnp.exp(scores - largest[:, None]).sum(-1), "x")
    ids = axis_index("x") * (scores.shape[1] - (axis_size("x") > 1)) + jnp.arange(scores.shape[1])
    target = psum(jnp.sum(jnp.where(ids[None] == y[:, None], scores, 0), -1), "x")
    return jnp.mean(jnp.log(total) + largest - target)


def entropy_less_another_number(h: Any, w: Any, y: Any) -> Any:
    """Right for real numbers: what is subtracted cancels out."""
    scores = h @ w
    largest = pmin(scores.max(-1), "x")
    total = psum(jnp.exp(scores - largest[:, None]).sum(-1), "x")
    ids = axis_index("x") * scores.shape[1] + jnp.arange(scores.shape[1])
    target = psum(jnp.sum(jnp.where(ids[None] == y[:, None], scores, 0), -1), "x")
    return jnp.mean(jnp.log(total) + largest - target)


def stencil_the_wrong_way(u: Any) -> Any:
    wide = jnp.concatenate([ppermute(u[-1:], "x", ring(-1)), u, ppermute(u[:1], "x", ring(1))])
    return 0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]


def exchanged_once(x: Any) -> Any:
    return all_to_all(jnp.tanh(x), "x", 0, 0, tiled=True)  # wrong


def passed(x: Any) -> Any:
    return jnp.tanh(x)


def sum_over_one_axis(x: Any) -> Any:
    return psum(x.sum(0), "x")  # wrong


def sum_over_both(x: Any) -> Any:
    return psum(x.sum(0), ("x", "y"))


BOTH: Final = ((2, 2), (numbers(16, 4),), (P(("x", "y")),), P())
# name: the wrong one, the right one, whether the difference is proved; the line that says `# wrong` is named then
FAULTS: Final = {
    "no sum": (Program(mlp_without_sum, *MLP), Program(mlp, *MLP), True),
    "two sums": (Program(mlp_summed_twice, *MLP), Program(mlp, *MLP), True),
    "a bias before the sum": (Program(mlp_biased_before_sum, *MLP), Program(biased_mlp, *MLP), True),
    "a part is squared": (Program(mlp_with_early_square, *MLP), Program(squared_mlp, *MLP), True),
    "gradients of the own batch": (Program(sgd_without_mean, *STEP), Program(sgd, *STEP), True),
    "a sum in place of a mean": (Program(sgd_with_sum, *STEP), Program(sgd, *STEP), True),
    "a summed loss": (Program(sgd_with_summed_loss, *STEP), Program(sgd, *STEP), True),
    "softmax with a local sum": (Program(entropy_with_local_total, *VOCABULARY), Program(entropy, *VOCABULARY), True),
    "softmax with a local maximum": (
        Program(entropy_with_local_maximum, *VOCABULARY),
        Program(entropy, *VOCABULARY),
        True,
    ),
    "a number that cancels out": (
        Program(entropy_less_another_number, *VOCABULARY),
        Program(entropy, *VOCABULARY),
        False,
    ),
    "a wrong offset": (Program(entropy_with_wrong_offset, *VOCABULARY), Program(entropy, *VOCABULARY), False),
    "halos of the wrong neighbours": (Program(stencil_the_wrong_way, *CUT_ROWS), Program(stencil, *CUT_ROWS), False),
    "parts in the wrong places": (Program(exchanged_once, *CUT_ROWS), Program(passed, *CUT_ROWS), True),
    "a sum over one of two axes": (Program(sum_over_one_axis, *BOTH), Program(sum_over_both, *BOTH), True),
}
