"""Draws mutants: a package, a module of it, a function, an operator of cosmic-ray, and a place where it applies."""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[2]
FOLDERS = ("distxla", "scheduler", "collectives")
TRIES = 20  # for one mutant: a module may have no function, a function nothing to mutate


@dataclass(frozen=True)
class Mutant:
    """module: from the repository's root.  function: its qualified name.  text: the whole module, mutated."""

    module: str
    function: str
    operator: str
    occurrence: int
    line: int
    text: str


@dataclass(frozen=True)
class Place:
    function: str
    operator: str
    occurrence: int
    line: int


OPERATORS = {
    name: operator()
    for name in cosmic_ray.plugins.operator_names()
    for operator in [cosmic_ray.plugins.get_operator(name)]
    if not operator.arguments() and not name.endswith("NoOp")
}


def modules() -> dict[str, list[str]]:
    """By package, without what lies behind symbolic links."""
    found = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path:
                name = str(path.relative_to(ROOT))
                found["/".join(name.split("/")[:-1][:3])].append(name)
    return dict(found)


Span = tuple[tuple[int, int], tuple[int, int]]


def functions_and_annotations(text: str) -> tuple[dict[str, tuple[int, int]], list[Span]]:
    """Lines of all functions by qualified name; and where annotations are, which nobody evaluates."""
    functions: dict[str, tuple[int, int]] = {}
    annotations = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[prefix + child.name] = (child.lineno, child.end_lineno or child.lineno)
                walk(child, f"{prefix}{child.name}.<locals>.")
            else:
                walk(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
            for note in (getattr(child, "annotation", None), getattr(child, "returns", None)):
                if isinstance(note, ast.expr):
                    end = (note.end_lineno or note.lineno, note.end_col_offset or note.col_offset)
                    annotations.append(((note.lineno, note.col_offset), end))

    walk(ast.parse(text), "")
    return functions, annotations


@cache
def places(module: str) -> tuple[Place, ...]:
    """Where an operator applies within a function."""
    functions, annotations = functions_and_annotations((ROOT / module).read_text())
    tree, found = get_ast_from_path(ROOT / module), []
    for name, operator in OPERATORS.items():
        positions = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(positions):
            around = [(b - a, function) for function, (a, b) in functions.items() if a <= start[0] <= b]
            if around and not any(a <= tuple(start) < b for a, b in annotations):
                found.append(Place(min(around)[1], name, occurrence, start[0]))
    return tuple(found)


def draw(choose: random.Random, names: list[str]) -> Mutant | None:
    module = choose.choice(names)
    if not (all_ := places(module)):
        return None
    function = choose.choice(sorted({place.function for place in all_}))
    operator = choose.choice(sorted({place.operator for place in all_ if place.function == function}))
    place = choose.choice([p for p in all_ if (p.function, p.operator) == (function, operator)])
    before = (ROOT / module).read_text()
    after = mutate_code(before, OPERATORS[operator], place.occurrence)
    try:
        compile(after or "", module, "exec")
    except SyntaxError:
        return None
    return Mutant(module, **asdict(place), text=after) if after and after != before else None


def sample(count: int, seed: int) -> list[Mutant]:
    """As many of each package as of any other, but for one."""
    choose, by_package = random.Random(seed), modules()
    found: dict[Mutant, None] = {}
    while len(found) < count:
        for package in choose.sample(sorted(by_package), len(by_package)):
            drawn = (draw(choose, by_package[package]) for _ in range(TRIES))
            new = next((mutant for mutant in drawn if mutant and mutant not in found), None)
            if new and len(found) < count:
                found[new] = None
    return list(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.write_text(json.dumps([asdict(mutant) for mutant in sample(options.count, options.seed)]))


if __name__ == "__main__":
    main()
