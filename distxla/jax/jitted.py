"""`distxla.jax.jit`: functions that are traced by JAX, and run on a cluster."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.extend.source_info_util import register_exclusion

from distxla.errors import ArgumentError, InternalError
from distxla.jax.array import Array, Signature, signature
from distxla.jax.compiled import Compiled
from distxla.jax.lowering import path_of
from distxla.jax.private.lowering import lower_for_distxla, lower_gpu_collectives
from distxla.jax.private.names import trace_context
from distxla.jax.values import array_of
from distxla.runtime.checks.checks import checks_of
from distxla.runtime.cluster import Cluster

MOST_PROGRAMS = 256  # of one function that stay compiled; the first ones go first

register_exclusion(str(Path(__file__).parent) + os.sep)  # JAX's errors name the user's line, not ours


class Jitted:
    """A function whose calls run on a cluster; `distxla.jax.jit` makes it."""

    def __init__(
        self,
        function: Callable[..., Any],
        cluster: Cluster,
        *,
        devices: Sequence[int] | None = None,
        trace: bool = False,
        check: str | Iterable[str] = (),
        **options: Any,
    ) -> None:
        lower_gpu_collectives()
        self._function = jax.jit(function, **{k: v for k, v in options.items() if v is not None})
        self._cluster = cluster
        self._devices, self._trace, self._check = devices, trace, checks_of(check)
        self._is_sharded = options.get("in_shardings") is not None
        self._static = _Static(function, options.get("static_argnums"), options.get("static_argnames"))
        self._context = trace_context()
        self._compiled: dict[Any, Compiled] = {}
        functools.update_wrapper(self, function, updated=())  # whose attributes are not ours

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function behind all calls under way; see `Compiled.__call__`. The first call with arguments of other
        types, structure, shardings or static values traces and compiles."""
        leaves, tree, signatures, statics = self._described(args, kwargs)
        key = tree, signatures, statics, self._context()
        try:
            compiled = self._compiled.get(key)
        except TypeError as error:
            raise ArgumentError(f"static arguments must be hashable: {error}") from None
        if compiled is None:
            compiled = self._compile(args, kwargs, tree, signatures)
            while len(self._compiled) >= MOST_PROGRAMS:
                self._compiled.pop(next(iter(self._compiled)))
            self._compiled[key] = compiled
        return jax.tree.unflatten(compiled.out_tree, compiled.call_leaves(leaves))

    def __repr__(self) -> str:
        return f"<distxla.jax.jit of {self._function.__wrapped__}>"

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """The program for arguments like these, which are arrays or `jax.ShapeDtypeStruct`, as JAX has lowered it:
        `as_text`, `cost_analysis`, and what `distxla.jax.compile` takes."""
        _, tree, signatures, _ = self._described(args, kwargs)
        return self._lowered(args, kwargs, tree, signatures)

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for arguments like these, as of `lower`; not run. Blocks."""
        _, tree, signatures, _ = self._described(args, kwargs)
        return self._compile(args, kwargs, tree, signatures)

    def _described(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], Any, tuple[Signature, ...], tuple[Any, ...]]:
        """The leaves of the arguments, their structure and types, and the static arguments."""
        statics: tuple[Any, ...] = ()
        if not self._static.is_empty:
            args, kwargs, statics = self._static.split(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        described = _unsharded_signature_of if self._is_sharded else _signature_of
        try:
            return leaves, tree, tuple(map(described, leaves)), statics
        except TypeError:
            raise _not_an_array(args, kwargs) from None

    def _compile(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tree: Any, signatures: Sequence[Signature]
    ) -> Compiled:
        lowered = self._lowered(args, kwargs, tree, signatures)
        return Compiled(lowered, self._cluster, devices=self._devices, trace=self._trace, check=self._check)

    def _lowered(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tree: Any, signatures: Sequence[Signature]
    ) -> jax.stages.Lowered:
        abstract = [found.abstract() for found in signatures]
        given, named = self._static.merged(args, kwargs, *jax.tree.unflatten(tree, abstract))
        lowered: jax.stages.Lowered = lower_for_distxla(self._function.trace(*given, **named))
        return lowered


class _Static:
    """Which arguments of a function are static: by position and by name, each with the other's as far as the function's
    parameters tell."""

    def __init__(
        self, function: Callable[..., Any], numbers: int | Sequence[int] | None, names: str | Iterable[str] | None
    ) -> None:
        self.numbers = {numbers} if isinstance(numbers, int) else set(numbers or ())
        self.names = {names} if isinstance(names, str) else set(names or ())
        self.is_empty = not self.numbers and not self.names
        if self.is_empty:
            return
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.numbers = {n + len(by_position) if n < 0 else n for n in self.numbers}
        self.numbers |= {k for k, p in enumerate(by_position) if p.name in self.names}
        self.names |= {
            p.name for k, p in enumerate(by_position) if k in self.numbers and p.kind is not p.POSITIONAL_ONLY
        }

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """Dynamic arguments by position and by name, and the static ones with their types: 3 and 3.0, which are equal,
        are different programs."""
        dynamic = tuple(value for k, value in enumerate(args) if k not in self.numbers)
        named = {name: value for name, value in kwargs.items() if name not in self.names}
        by_position = tuple((k, type(args[k]), args[k]) for k in sorted(self.numbers) if k < len(args))
        by_name = tuple((name, type(kwargs[name]), kwargs[name]) for name in sorted(self.names) if name in kwargs)
        return dynamic, named, by_position + by_name

    def merged(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other dynamic ones."""
        rest = iter(dynamic)
        given = tuple(value if k in self.numbers else next(rest) for k, value in enumerate(args))
        return given, {name: named.get(name, value) for name, value in kwargs.items()}


def _signature_of(leaf: Any) -> Signature:
    """TypeError for what is no array of a type that JAX has."""
    if type(leaf) is Array:
        return leaf.signature
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return signature(tuple(leaf.shape), leaf.dtype, bool(getattr(leaf, "weak_type", False)), leaf.sharding)
    if isinstance(leaf, bool | int | float | complex):
        return signature((), jax.dtypes.canonicalize_dtype(type(leaf)), True)
    if isinstance(leaf, jax.Array):
        return signature(leaf.shape, leaf.dtype, bool(getattr(leaf, "weak_type", False)))
    array = array_of(leaf)
    return signature(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def _not_an_array(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentError:
    """The error for the first of these arguments that has no signature."""
    for path, leaf in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
        try:
            _signature_of(leaf)
        except TypeError:
            return ArgumentError(f"{path_of(path)}: expected an array, or a static argument, found {leaf!r:.80}")
    raise InternalError("all arguments are arrays")


def _unsharded_signature_of(leaf: Any) -> Signature:
    found = _signature_of(leaf)
    return found if found.sharding is None else signature(found.shape, found.dtype, found.weak_type)


def jit(
    function: Callable[..., Any],
    *,
    cluster: Cluster,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    devices: Sequence[int] | None = None,
    trace: bool = False,
    check: str | Iterable[str] = (),
) -> Jitted:
    """A function that JAX traces and lowers, XLA partitions, and the cluster runs: `jax.jit` on distxla.

        mesh = dxj.make_mesh((8,), ("i",))
        rows = NamedSharding(mesh, PartitionSpec("i"))
        step = dxj.jit(train, cluster=cluster, in_shardings=(None, rows), donate_argnums=0)
        params = step(params, batch)                # pytrees in, pytrees of `distxla.jax.Array` out

    The mesh may be smaller than the cluster, whose first devices then run the program, or those that `devices` names in
    the order of the mesh; without any mesh it is one device.
    Where `in_shardings` is not given, Arrays come in as they are cut, and the partitioner cuts the others. The other
    options are those of `jax.jit`.  trace: traces show each step that the programs compute.  check: "nan",
    "replication" or both, of each call (docs/guide/checked_runs.md).

    Returns before the devices are done; failures are raised at the results.
    """
    options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    if not callable(function):
        raise ArgumentError(f"jit takes a function, found {type(function).__name__}")
    return Jitted(function, cluster, devices=devices, trace=trace, check=check, keep_unused=keep_unused, **options)


__all__ = ["Jitted", "jit"]
