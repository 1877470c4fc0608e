"""README.md and the pages of docs/ agree with the project. Their code blocks: tests/documentation/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import distxla
from distxla.cli.main import COMMANDS, main
from distxla.ops.custom_calls.target import built_in_targets
from distxla.ops.support.registry import op_classes
from docs.update_tables import CUSTOM_CALLS, OPS, updated_custom_calls, updated_ops
from tests.documentation.blocks import PAGES, blocks

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_first_two_commands_set_up_run_and_test() -> None:
    commands = [body.strip() for language, body in BLOCKS if language == "sh"][:2]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for command in commands:
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE)


def test_the_demo_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command on the reference, which has the same lines but for processes, and no times of a compiler."""
    command = re.search(r"^demo:.*\n\t\S+/distxla (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command is not None
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main([*command[1].replace("$(DEMO)", "examples/dp_mlp").split(), "--backend", "reference"])
    assert ended.value.code == 0
    shown = next(body for language, body in BLOCKS if language == "text")
    printed = capsys.readouterr().out

    def results(text: str) -> list[str]:
        """Without what depends on the machine; times have a form, and the comparison an outcome."""
        text = re.sub(r", crc32 [0-9a-f]{8}$", "", text, flags=re.MULTILINE)
        text = re.sub(r"largest\s+difference .*", "", text)
        text = re.sub(r"\d+ process(es)? on .*", "processes", text).replace("cpu backend", "reference backend")
        text = re.sub(r"compile .* start\), ", "", text)
        text = re.sub(r", start .* load .*", "", text)
        text = re.sub(r"[\d.]+ (ms|s|µs)\b", "time", text)
        return [re.sub(r"-?\d+\.\d{4,}", lambda m: f"{float(m[0]):.3g}", line) for line in text.splitlines()]

    assert results(printed) == results(shown)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_op_table_is_the_generated_one() -> None:
    text = OPS.read_text()
    assert updated_ops(text) == text, "run `make ops-table`"
    for opcode in op_classes():
        assert f"`{opcode}`" in text


def test_the_table_of_custom_calls_is_the_generated_one() -> None:
    text = CUSTOM_CALLS.read_text()
    assert updated_custom_calls(text) == text, "run `make ops-table`"
    for name, target in built_in_targets().items():
        assert f"`{name}`" in text
        assert (type(target).__doc__ or "").strip(), f"the class of {name} says nothing"


@pytest.mark.parametrize("page", ["README.md", "docs/command_line.md"])
def test_every_command_is_shown(page: str) -> None:
    shown = "".join(block.source for block in blocks(ROOT / page))
    assert set(re.findall(r"^(?:\$ )?distxla (\w+)", shown, re.MULTILINE)) == set(COMMANDS)


def test_every_public_name_is_in_the_api_reference() -> None:
    named = re.findall(r"auto\w+:: distxla\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(distxla.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Files of the project, from its root, and of blocks of the page; and what links lead to."""
    text = page.read_text()
    made = {block.file for block in blocks(page)}
    folders = r"(?:distxla|scheduler|collectives|tests|docs|bench|examples|clusters)/[\w./]*"
    named = set(re.findall(rf"`({folders}|[\w./]+\.(?:py|md|sh|toml))`", text)) - made
    assert not {name for name in named if not (ROOT / name).exists()}
    links = {link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if not link.startswith("http")}
    assert not {link for link in links if not (page.parent / link).exists()}


@pytest.mark.parametrize("path", ["pyproject.toml", "README.md", "requirements/pinned.txt", ".ci/run", "Makefile"])
def test_what_a_user_installs_names_no_host(path: str) -> None:
    """Versions are pinned without saying where they come from."""
    text = (ROOT / path).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--hash|file:", text)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_is_pinned_once_for_each_python(python: str) -> None:
    pins = [Requirement(line) for line in (ROOT / "requirements" / "pinned.txt").read_text().splitlines()]
    held = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_version": python})]
    assert sorted(pin.name for pin in held) == sorted({pin.name for pin in pins})
    assert all(re.fullmatch(r"==[0-9][\w.]*", str(pin.specifier)) for pin in pins)
    assert f"{python}" in (ROOT / "requirements" / "pythons").read_text()
