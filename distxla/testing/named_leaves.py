"""The leaves of a pytree, each with its path: `params['b1']`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf, None included; the path of a tree that is one leaf is "".

    By JAX's own rules where the process has loaded JAX, which knows the types that users have registered; else dicts in
    the order of their keys, lists, tuples and named tuples.
    """
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return [(_shown(path), leaf) for path, leaf in _walked(tree, ())]
    found = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda value: value is None)[0]
    return [(_shown(tuple(jax.tree_util.keystr((key,)) for key in path)), leaf) for path, leaf in found]


def _walked(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=lambda key: (type(key).__name__, key)):
            yield from _walked(tree[key], (*path, f"[{key!r}]"))
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        for name, value in zip(tree._fields, tree, strict=True):
            yield from _walked(value, (*path, f".{name}"))
    elif isinstance(tree, list | tuple):
        for k, value in enumerate(tree):
            yield from _walked(value, (*path, f"[{k}]"))
    else:
        yield path, tree


def _shown(path: tuple[str, ...]) -> str:
    """A first key that is a name stands for a variable."""
    if path and (name := path[0].removeprefix("['").removesuffix("']")).isidentifier():
        return "".join((name, *path[1:]))
    return "".join(path)


__all__ = ["named_leaves"]
