"""What the hosts of a Ray cluster are, and how fast they reach each other."""

from __future__ import annotations

import itertools
import json
import platform
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from distxla.cli.main import main
from distxla.errors import ClusterError
from distxla.runtime.hosts import survey as surveys
from distxla.runtime.hosts.survey import SURVEY_FRAMES, Surveyor, survey, turns
from distxla.wire.handshake import connect, new_secret
from distxla.wire.network import Network


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_each_pair_has_one_turn_and_a_host_one_pair_a_turn(count: int) -> None:
    found = [*turns(count)]
    assert sorted(itertools.chain(*found)) == [*itertools.combinations(range(count), 2)]
    for turn in found:
        hosts = [*itertools.chain(*turn)]
        assert len(hosts) == len({*hosts})
    assert len(found) == (count - 1 if count % 2 == 0 else count if count > 1 else 0)


@pytest.fixture
def one() -> Iterator[Surveyor]:
    found = Surveyor()
    yield found
    found.close()


def test_two_surveyors_measure_what_is_between_them(one: Surveyor) -> None:
    secret = new_secret()
    address = one.listen(1, "127.0.0.1", secret, Network(), 1)
    round_trip, rate = Surveyor().measure(0, address, secret, 3.5)
    assert round_trip > 0
    assert rate > 0
    with pytest.raises(ClusterError, match=r"it closed the connection|does not know this run's secret"):
        Surveyor().measure(0, address, new_secret(), 3.5)


def test_what_is_no_frame_of_a_survey_ends_the_connection(one: Surveyor) -> None:
    secret = new_secret()
    address = one.listen(1, "127.0.0.1", secret, Network(), 1)
    with connect(address, secret, frames=SURVEY_FRAMES, node=0) as connection:
        connection.send(surveys.Came())
        with pytest.raises(ClusterError, match=r"has closed the connection|is lost"):
            connection.receive()


@pytest.mark.cluster
def test_all_nodes_are_asked_and_all_links_measured(ray_cluster: Any) -> None:
    found = survey(ray_cluster.address, Network(), threading.Event())
    assert [host.trouble for host in found.hosts] == [""] * 3
    for host in found.hosts:
        assert host.found is not None
        assert (host.found.python, host.found.facts.name) == (platform.python_version(), platform.node())
        assert host.found.processors >= 1
    assert [host.node.cpus for host in found.hosts] == [2, 1, 1]
    assert [(link.source, link.target) for link in found.links] == [*itertools.permutations(range(3), 2)]
    assert all(link.round_trip_s > 0 and link.bytes_per_s > 0 and not link.trouble for link in found.links)


@pytest.mark.cluster
def test_the_command(ray_cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["hosts", "--address", ray_cluster.address, "--no-links", "--json", "--network", "interface=127.0.0.0/8"])
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["links"] == []
    assert [(host["host"], host["address"], host["trouble"]) for host in found["hosts"]] == [
        (index, "127.0.0.1", None) for index in range(3)
    ]


@pytest.mark.cluster
def test_hosts_that_can_not_be_asked_are_told_with_why(ray_cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["hosts", "--address", ray_cluster.address, "--network", "interface=203.0.113.0/24"])
    assert ended.value.code == 1
    printed = capsys.readouterr().out
    assert printed.count("can take no devices: no interface of") == 3
    assert "round trip" not in printed
