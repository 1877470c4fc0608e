"""One target under the fuzzer, in a process of its own: `python -m tests.fuzz.child TARGET FINDINGS OPTION...`.

The options are libFuzzer's. A target's exception is noted and the fuzzer goes on; only a hang, want of memory or a
crash of the interpreter ends it, and it writes the input to FINDINGS itself.
"""

from __future__ import annotations

import random
import shlex
import sys
import warnings
from pathlib import Path

import atheris

from tests.fuzz.findings import Findings, limited_memory


def main(name: str, folder: str, options: list[str]) -> None:
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["distxla"], enable_loader_override=False):
        from tests.fuzz.targets import load

        target = load(name)
        findings = Findings(name, target, Path(folder))
        for seed in target.seeds():  # the ops are imported on demand
            findings.check(seed)

    def changed(data: bytes, most: int, seed: int) -> bytes:
        found = target.mutate(data, random.Random(seed))
        return atheris.Mutate(data, most) if found is None else found[:most]

    # libFuzzer's -merge starts its own command again, through a shell
    own = shlex.join([sys.executable, "-m", "tests.fuzz.child", name, folder])
    atheris.Setup([own, f"-max_len={target.largest}", *options], findings.check, custom_mutator=changed)
    with limited_memory():
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
