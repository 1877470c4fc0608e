"""What a terminal shows and what a pipe gets: lines wrapped between words, colours, one writer for all commands."""

from __future__ import annotations

import ast
import io
import logging
import os
import pty
import re
import termios
from pathlib import Path

import pytest

from distxla.cli import terminal
from distxla.cli.main import main
from tests.deadlock_programs import NAMED

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
CLI = Path(terminal.__file__).parent


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> tuple[Screen, Screen]:
    """stdout and stderr as terminals of 60 columns."""
    out, err = Screen(), Screen()
    monkeypatch.setattr(terminal, "stream_of", lambda is_err: err if is_err else out)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return out, err


def status_of(*args: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(args)
    return ended.value.code


@pytest.mark.parametrize(
    ("line", "width", "hang", "lines"),
    [
        ("short", 20, 2, ["short"]),
        ("", 20, 2, [""]),
        ("one two three four", 9, 2, ["one two", "  three", "  four"]),
        ("exactly nine", 7, 0, ["exactly", "nine"]),
        ("  a bb ccc dddd", 8, 4, ["  a bb", "    ccc", "    dddd"]),
        ("see /a/path/that/is/long here", 10, 2, ["see", "  /a/path/that/is/long", "  here"]),
        ("/a/path/that/is/long here", 10, 2, ["/a/path/that/is/long", "  here"]),
        ("averylongwordwithoutspaces", 10, 2, ["averylongwordwithoutspaces"]),
        ("  averylongwordwithoutspaces", 10, 4, ["  averylongwordwithoutspaces"]),
        ("a hang beyond the middle", 10, 30, ["a hang", "     beyond", "     the", "     middle"]),
        ("trailing space    ", 10, 2, ["trailing", "  space"]),
    ],
)
def test_lines_wrap_between_words(line: str, width: int, hang: int, lines: list[str]) -> None:
    assert terminal.wrapped(line, width, hang) == lines


@pytest.fixture
def deadlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("a.hlo").write_text(NAMED["all_reduces_in_different_orders"].programs[0][1])
    return ["a.hlo", "--replicas", "4"]


@pytest.mark.parametrize("command", [["check"], ["run", "--backend", "reference"]], ids=lambda c: c[0])
def test_a_terminal_gets_wrapped_lines_in_colours(
    command: list[str], deadlock: list[str], screens: tuple[Screen, Screen]
) -> None:
    assert status_of(*command, *deadlock) == 3
    text = screens[1].getvalue()
    assert re.search(r"^\x1b\[1ma\.hlo:\d+:\d+: \x1b\[0m\x1b\[1;31merror:\x1b\[0m (deadlock|mismatch): ", text)
    assert re.search(r"^ +\x1b\[1;31m\^+\x1b\[0m$", text, re.MULTILINE)
    assert re.search(r"^  \x1b\[36mhint: .*\x1b\[0m$", text, re.MULTILINE)
    lines = ESCAPE.sub("", text).splitlines()
    assert all(len(line) <= 60 or "^" in line for line in lines if "all-reduce(" not in line)


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_colours_can_be_turned_off(
    name: str, deadlock: list[str], screens: tuple[Screen, Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "dumb")
    assert status_of("check", *deadlock) == 3
    assert "\x1b" not in screens[1].getvalue()
    assert max(map(len, screens[0].getvalue().splitlines())) <= 60


def test_a_pipe_gets_whole_plain_lines(
    deadlock: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert status_of("check", *deadlock) == 3
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    line = next(line for line in err.splitlines() if line.startswith("  device 0 waits in a (a.hlo:9:3)"))
    assert line.endswith("for device 1: all-reduce, group {0,1}, round 1")
    assert max(map(len, err.splitlines())) > 100


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = pty.openpty()
    try:
        termios.tcsetwinsize(follower, (24, 50))
        with open(follower, "w", closefd=False) as stream:
            monkeypatch.setattr("sys.stdout", stream)
            terminal.write("word " * 20)
        shown = os.read(leader, 1000).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert [len(line) for line in shown.splitlines()] == [49, 46, 6]


def test_source_with_carets_is_never_wrapped(screens: tuple[Screen, Screen], tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    long = "f32[2] add(" + ", ".join(["x"] * 30) + ")"
    path.write_text(f"ENTRY main {{\n  x = f32[2] parameter(0)\n  ROOT y = {long}\n}}\n")
    assert status_of("check", str(path)) == 2
    lines = ESCAPE.sub("", screens[1].getvalue()).splitlines()
    source = next(number for number, line in enumerate(lines) if long in line)
    assert re.fullmatch(r" +\^+", lines[source + 1])


def test_what_a_terminal_would_obey_is_escaped(screens: tuple[Screen, Screen]) -> None:
    for write in (terminal.write, terminal.write_exactly):
        write("\x1b[31mred\rx")
    assert screens[0].getvalue() == "\\x1b[31mred\\rx\n" * 2


def test_letters_that_an_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(content, encoding="ascii"))
    terminal.write("12 µs …")
    assert content.getvalue() == b"12 \\xb5s \\u2026\n"


def test_notices_of_the_library_are_notes(screens: tuple[Screen, Screen], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("distxla")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    for _ in range(2):
        terminal.show_notices()
    logger.warning("%s", "distxla: device 0 computes; device 1 waits for it in c, for 5 s so far")
    assert ESCAPE.sub("", screens[1].getvalue()) == (
        "note: device 0 computes; device 1 waits for it in c, for 5 s\n  so far\n"
    )


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_commands_write_through_one_module(path: Path) -> None:
    """Bytes that `compile` emits are no text."""
    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    direct = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write", "traceback.print_exception"}
    assert not calls & direct
