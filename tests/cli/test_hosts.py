"""`distxla hosts`: the tables, and the JSON object, of what a survey has found."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from distxla.cli.hosts import as_data, lines
from distxla.cli.main import main
from distxla.machine.memory_limits import Limit
from distxla.runtime.hosts.nodes import Facts, Node
from distxla.runtime.hosts.survey import HostFacts, Survey, SurveyedHost, SurveyedLink
from distxla.runtime.values.memory_need import Room

ROOM = Room(Limit(30 << 30, ""), Limit(1 << 47, ""), 0)
FACTS = Facts("a", "10.0.0.1", 7, "0.9.0, control block 12", "x86_64", frozenset({"avx2"}), ROOM, Limit(8 << 30, ""))
FOUND = HostFacts(FACTS, "3.13.0", "EPYC 7", 16)
HOSTS = (
    SurveyedHost(Node("x1", "10.0.0.1", "node-a", 8.0), FOUND, ""),
    SurveyedHost(
        Node("x2", "10.0.0.2", "node-b", 4.0, 2.0),
        replace(FOUND, facts=replace(FACTS, address="10.0.0.2", version="0.8.0, control block 11"), processors=4),
        "host 1 (node-b) has distxla 0.8.0, the driver 0.9.0",
    ),
    SurveyedHost(Node("x3", "10.0.0.3", "node-c", 4.0), None, "host 2 (node-c) has no distxla of this version"),
)
LINKS = (SurveyedLink(0, 1, 52e-6, 1.25e9), SurveyedLink(1, 0, trouble="cannot connect to 10.0.0.1:40001: refused"))


def test_the_tables() -> None:
    assert [*lines(Survey(HOSTS, LINKS))] == [
        "host  node    address   distxla  Python  processors  memory                GPUs",
        "0     node-a  10.0.0.1  0.9.0    3.13.0  16          8 GiB free of 30 GiB  0",
        "1     node-b  10.0.0.2  0.8.0    3.13.0  4           8 GiB free of 30 GiB  2",
        "2     node-c  10.0.0.3  ?        ?       4           ?                     0",
        "hosts 0, 1: EPYC 7",
        "host 1 can take no devices: host 1 (node-b) has distxla 0.8.0, the driver 0.9.0",
        "host 2 can take no devices: host 2 (node-c) has no distxla of this version",
        "from host 1 to host 0: cannot connect to 10.0.0.1:40001: refused",
        "round trip, µs, from the host of the row to that of the column:",
        "   0   1  2",
        "0  -  52  ?",
        "1  ?   -  ?",
        "2  ?   ?  -",
        "one way, MB/s, from the host of the row to that of the column:",
        "   0     1  2",
        "0  -  1250  ?",
        "1  ?     -  ?",
        "2  ?     ?  -",
    ]


def test_links_of_many_hosts_are_told_by_the_extremes() -> None:
    pairs = itertools.permutations(range(9), 2)
    links = tuple(SurveyedLink(a, b, 1e-6 * (10 * a + b + 1), 1e6 * (a + 1)) for a, b in pairs)
    told = [*lines(Survey((HOSTS[0],) * 9, links))][-8:]
    assert told == [
        "round trip, µs, in the order of round trips:",
        "  least: 2 (from host 0 to host 1)",
        "  median: 46 (from host 4 to host 5)",
        "  most: 88 (from host 8 to host 7)",
        "one way, MB/s, in the order of round trips:",
        "  least: 1 (from host 0 to host 1)",
        "  median: 5 (from host 4 to host 5)",
        "  most: 9 (from host 8 to host 7)",
    ]


def test_the_object() -> None:
    found = as_data(Survey(HOSTS, LINKS))
    assert found["hosts"][0] == {
        "host": 0, "node": "node-a", "id": "x1", "address": "10.0.0.1", "ray_cpus": 8.0, "ray_gpus": 0.0,
        "trouble": None, "version": "0.9.0", "python": "3.13.0", "machine": "x86_64", "processor": "EPYC 7",
        "processors": 16, "memory_bytes": 30 << 30, "free_bytes": 8 << 30,
    }  # fmt: skip
    assert found["hosts"][2]["trouble"] == "host 2 (node-c) has no distxla of this version"
    assert "version" not in found["hosts"][2]
    assert found["links"] == [
        {"source": 0, "target": 1, "round_trip_s": 52e-6, "bytes_per_s": 1.25e9, "trouble": None},
        {"source": 1, "target": 0, "round_trip_s": None, "bytes_per_s": None, "trouble": LINKS[1].trouble},
    ]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ([], "Missing option '--address'"),
        (["--address", "127.0.0.1:1", "--network", "ports=x"], "ports: expected FIRST-LAST within 1 to 65535"),
    ],
)
def test_wrong_options(args: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["hosts", *args])
    assert ended.value.code == 2
    assert error.lower() in capsys.readouterr().err.lower()
