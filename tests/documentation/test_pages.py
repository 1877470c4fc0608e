"""What the tests of code blocks leave out is marked, and counted here."""

from __future__ import annotations

from tests.documentation.blocks import PAGES, ROOT, Block, blocks, commands, sessions

RUN = {"python", "sh", "console"}
SAVED = {"hlo", "mlir", "c", "python", "yaml"}
# reasons that stand above the blocks that the tests can't run
NOT_RUN = {
    "docs/command_line.md": ["needs zsh and fish"],
    "docs/pjrt.md": ["needs a checkout of JAX"],
    "docs/simulation.md": ["takes a minute"],
    "docs/guide/clusters.md": [
        "it starts a Ray head on a fixed port",
        "needs two hosts",
        "needs two hosts",
        "needs two hosts",
    ],
    "docs/guide/gpu.md": ["needs a GPU"],
    "docs/guide/processes.md": [
        "needs a Ray cluster",
        "needs a Ray cluster with its dashboard",
        "needs a terminal",
    ],
    "docs/jobs/ray_cluster.md": ["it starts a Ray head on a fixed port", "needs two hosts"],
}
NEEDED = {"docs/guide/dumps.md": ["torch_xla", "tensorflow"]}
# commands of make, which are looked up, not run: one of them is `make test`
MAKE = {
    "README.md": {"make demo", "make test"},
    "CONTRIBUTING.md": {"make quick", "make test", "make test-all", "make check", "make all"},
    "docs/benchmarks.md": {'make bench ARGS="--only programs"'},
    "docs/simulation.md": {"make simulate SEEDS=10000"},
}
# text that no block printed and that isn't generated: what `make demo` prints, pictures of folders and stages
TEXT_ALONE = {"README.md": 1, "docs/architecture.md": 1, "docs/simulation.md": 1}


def is_generated(block: Block) -> bool:
    """Whether `make ops-table` writes it: tests compare what lies between its markers."""
    above = block.example.document.text[: block.example.start]
    return above.count(": begin -->") > above.count(": end -->")


def by_page(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {page: reasons for page, reasons in found.items() if reasons}


def test_blocks_that_are_not_run_are_marked_and_counted() -> None:
    found = {str(p.relative_to(ROOT)): blocks(p) for p in PAGES}
    assert (
        by_page({p: [b.not_run for b in all_ if b.not_run and not b.follows] for p, all_ in found.items()}) == NOT_RUN
    )
    assert by_page({p: [b.needs for b in all_ if b.needs and not b.follows] for p, all_ in found.items()}) == NEEDED


def test_every_other_block_is_run_or_saved_or_output() -> None:
    alone: dict[str, int] = {}
    for page in PAGES:
        previous = None
        for block in blocks(page):
            if block.language == "text":
                is_output = block.follows and previous is not None and previous.language in RUN
                if not is_output and not is_generated(block):
                    alone[str(page.relative_to(ROOT))] = alone.get(str(page.relative_to(ROOT)), 0) + 1
            elif block.file is None or block.follows:
                assert block.language in RUN, f"{block.place}: {block.language or 'no language'}"
            else:
                assert block.language in SAVED, f"{block.place}: {block.language}"
            previous = block
    assert alone == TEXT_ALONE


def test_which_commands_of_make_are_shown() -> None:
    found = {}
    for page in PAGES:
        lines = [line for b in blocks(page) if b.language == "sh" for line in commands(b.source)]
        lines += [line for b in blocks(page) if b.language == "console" for line, _ in sessions(b.source)]
        found[str(page.relative_to(ROOT))] = {
            line.partition("#")[0].strip() for line in lines if line.startswith("make ")
        }
    assert {page: lines for page, lines in found.items() if lines} == MAKE
