"""The plugin's work from the first test with a cluster on: the pool, and the checks after each test."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from distxla.errors import ArgumentError
from distxla.runtime.leftovers import is_free
from distxla.testing.attachments import file_in
from distxla.testing.leaks import ProcessState
from distxla.testing.pool import GRACE_S, ClusterPool, PooledCluster, Size, Use, size_of
from distxla.testing.sections import CLUSTERS

_KEY: pytest.StashKey[Checks] = pytest.StashKey()


def checks_of(config: pytest.Config) -> Checks:
    """Those of this run of pytest; the first call begins them."""
    found = config.stash.get(_KEY, None)
    if found is None:
        found = config.stash[_KEY] = Checks(config)
        config.pluginmanager.register(found, "distxla checks")
    return found


class Checks:
    """Hooks for tests with clusters. pool: their clusters."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder: str | None = config.getoption("--distxla-trace")
        limit = _number(config, "distxla_time_limit", float)
        idle = _number(config, "distxla_idle_clusters", int)
        self.pool = ClusterPool(idle, limit or None, is_traced=self._folder is not None)
        self._state: ProcessState | None = None

    def take(self, size: Size) -> PooledCluster:
        """A cluster for the present test."""
        cluster = self.pool.take(size)
        if self._state is None:
            self._state = ProcessState(self.pool)
        return cluster

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """A failure keeps the frames of its test, with all that they hold."""
        if call.excinfo is not None:
            for use in self.pool.uses:
                use.has_failures = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """When all fixtures are gone: see what is left, and put the clusters back."""
        try:
            return (yield)
        finally:
            if uses := self.pool.over():
                self._finish(item, uses)

    def _finish(self, item: pytest.Item, uses: list[Use]) -> None:
        state, self._state = self._state, None
        left = self._left(item, uses, state)
        self._write_traces(item.nodeid, uses)
        for use in uses:
            self.pool.put_back(use)
        lines, self.pool.lines = self.pool.lines, []
        if lines:
            item.add_report_section("teardown", CLUSTERS, "\n".join(f"{item.nodeid}: {line}" for line in lines))
        if left:
            pytest.fail("the test left something behind:\n" + "\n".join(f"  {line}" for line in left), pytrace=False)

    def _left(self, item: pytest.Item, uses: list[Use], state: ProcessState | None) -> list[str]:
        """Sentences about what the test left behind; of a test that failed nothing is asked."""
        if any(use.has_failures for use in uses):
            return []
        for use in uses:
            use.is_busy = not is_free(use.cluster, GRACE_S)
        if any(use.is_busy for use in uses):
            return ["a call that does not end"]
        if unseen := [error for use in uses if (error := use.cluster.queue.take_unseen()) is not None]:
            return [f"a call that failed, of which no result was read: {error}" for error in unseen]
        if any(use.holdings.seem_left for use in uses):
            getattr(item, "funcargs", {}).clear()  # of fixtures that are gone, which pytest drops after this
        left = [line for use in uses for line in use.holdings.left()]
        return left + (state.left() if state is not None else [])

    def _write_traces(self, nodeid: str, uses: list[Use]) -> None:
        for number, use in enumerate(uses):
            trace = use.cluster.end_recording()
            if trace is not None and self._folder is not None:
                trace.write(file_in(self._folder, nodeid, f"{number + 1}.json" if number else ".json"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Also after Ctrl-C."""
        self.pool.close()


def marked_size(node: Any) -> Size:
    """The size that the test's mark `devices` names."""
    mark = node.get_closest_marker("devices")
    if mark is None:
        pytest.fail("the fixture `cluster` needs the number of devices, as in @pytest.mark.devices(8)", pytrace=False)
    try:
        return size_of(*mark.args, **mark.kwargs)
    except (TypeError, ArgumentError) as error:
        arguments = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
        pytest.fail(f"@pytest.mark.devices({', '.join(arguments)}): {error}", pytrace=False)


def _number(config: pytest.Config, name: str, kind: type[int] | type[float]) -> Any:
    """An option of the configuration file."""
    text = config.getini(name)
    try:
        found = kind(text)
    except ValueError:
        raise pytest.UsageError(f"{name}: expected a number, found {text!r}") from None
    if found < 0:
        raise pytest.UsageError(f"{name}: expected no negative number, found {text}")
    return found
