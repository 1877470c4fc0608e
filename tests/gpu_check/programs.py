"""A few programs on the GPU, in this process, for compute-sanitizer."""

from __future__ import annotations

from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.programs import PROGRAMS

FORM = "optimized"


def main() -> None:
    for program in PROGRAMS:
        module = parse_module(program.text(FORM))
        program.assert_results(run_module("nvptx", module, program.arguments, 1, program.devices))
        print(f"{program.name}: the results of XLA", flush=True)


if __name__ == "__main__":
    main()
