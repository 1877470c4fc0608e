"""Code outside ops/ asks what an op is by the properties that `Op` declares; by its class where it uses its fields."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from distxla.ir.op import Op
from distxla.ops.registry import op_classes

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("distxla", "scheduler", "collectives")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(part.is_symlink() for part in path.parents) and not path.is_relative_to(ROOT / "distxla" / "ops")
]
MOST_PLACES = 2  # that ask for the same class


def test_what_many_ask_of_an_op_is_declared() -> None:
    asked: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for line, classes in bare_questions(path.read_text()):
            asked[classes].append(f"{path.relative_to(ROOT)}:{line}")
    many = {classes: places for classes, places in asked.items() if len(places) > MOST_PLACES}
    assert not many, f"declare a property of Op (ir/op.py) and ask for that: {many}"


def test_a_bare_question_is_one_that_uses_no_field() -> None:
    bare = "def f(i):\n    return isinstance(i.op, While)\n"
    field = "def f(i):\n    return i.op.body if isinstance(i.op, While) else None\n"
    passed = "def f(i):\n    op = i.op\n    return g(op) if isinstance(op, Tuple | While) else None\n"
    either = "def f(i):\n    return isinstance(op := i.op, Tuple | While) and op.lowering\n"
    other = "def f(i):\n    return isinstance(i.shape, tuple)\n"
    found = [list(bare_questions(text)) for text in (bare, field, passed, either, other)]
    assert found == [[(2, "While")], [], [], [(2, "Tuple | While")], []]


def bare_questions(text: str) -> Iterator[tuple[int, str]]:
    """(line, classes): each `isinstance` of op classes in a function that uses nothing else of those classes, passes
    the op to nobody and asserts nothing of it."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    asserted = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance") or id(node) in asserted:
            continue
        asked, classes = node.args
        names = {name.id for name in ast.walk(classes) if isinstance(name, ast.Name)}
        if not names & CLASSES.keys():
            continue
        op = ast.unparse(asked.target if isinstance(asked, ast.NamedExpr) else asked)
        around = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
        if not any(_is_used(inner, op) for inner in ast.walk(around[-1] if around else tree)):
            yield node.lineno, " | ".join(sorted(names))


def _is_used(node: ast.AST, op: str) -> bool:
    """Whether the node uses a field that not every op has, or passes the op on."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value) == op and not hasattr(Op, node.attr)
    if not isinstance(node, ast.Call) or ast.unparse(node.func) in ("isinstance", "getattr"):
        return False
    return any(ast.unparse(value) == op for value in (*node.args, *(k.value for k in node.keywords)))


def _with_subclasses(op_class: type[Op]) -> Iterator[type[Op]]:
    yield op_class
    for subclass in op_class.__subclasses__():
        yield from _with_subclasses(subclass)


op_classes()  # imports them all
CLASSES = {found.__name__: found for found in _with_subclasses(Op)}
