"""The pytest plugin: fixtures with a broker, a marker for its settings, and the broker's state in reports of failures.

Every pytest of an environment loads it, so it imports nothing more until a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from minibroker.testing import Broker

MARKER = "kafka"
MARKER_HELP = (
    "kafka(nodes=1, auto_create=True, settings={...}, emulate='2.8', security='SASL_SSL', users={...}, fill={...}): "
    "the broker that the fixture `kafka` is in this test: its nodes, whether topics are created on first use, settings "
    "by Apache Kafka's names, the Kafka release that it emulates, its security and users, and topics with records"
)
MARKER_WORDS = ("nodes", "auto_create", "settings", "emulate", "security", "users", "fill")
SEEN = pytest.StashKey["list[Broker]"]()  # the brokers of a test, in its stash
SHARED = pytest.StashKey["Broker"]()  # `kafka_broker`, in the session's stash
BEFORE = pytest.StashKey[int]()  # how many requests `kafka_broker` had seen when a test began

Make = Callable[..., "Broker"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)


@pytest.fixture(scope="session")
def kafka_settings() -> Mapping[str, object]:
    """Return the settings of all brokers of the session, by Apache Kafka's names. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def _kafka_brokers(kafka_settings: Mapping[str, object]) -> Iterator[Make]:
    """Yield a function that returns a broker with these options, which is started once and stopped with the session."""
    import contextlib

    from minibroker.testing import Broker

    brokers: dict[str, Broker] = {}
    with contextlib.ExitStack() as running:

        def broker(settings: Mapping[str, object] | None = None, **more: Any) -> Broker:
            wanted = {**kafka_settings, **(settings or {})}
            key = repr((sorted(wanted.items()), sorted(more.items())))
            if key not in brokers:
                made = Broker(wanted, **more)
                brokers[key] = running.enter_context(made)
                made.journal.on()
            return brokers[key]

        yield broker


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, _kafka_brokers: Make) -> Broker:
    """Return the session's broker, which only `kafka` resets. Its address is `kafka_broker.bootstrap_servers`."""
    request.session.stash[SHARED] = broker = _kafka_brokers()
    return broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _kafka_brokers: Make) -> Broker:
    """Return the session's broker after a reset, or with the marker `kafka` a broker with these options."""
    words = _marked(request.node)
    fill = words.pop("fill", None)
    broker = _kafka_brokers(**words)
    _watch(request.node, broker)
    if broker.is_stopped:
        broker.start()
    elif not broker.is_running:
        broker.restart()
    broker.reset()
    broker.journal.on()
    if fill is not None:
        broker.fill(request.path.parent / fill if isinstance(fill, str | Path) else fill)
    return broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka: Broker) -> str:
    """Return the name of an empty topic."""
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in request.node.name)[:200].strip("-")
    kafka.create_topic(name)
    return name


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_settings: Mapping[str, object]) -> Iterator[Make]:
    """Yield a function that starts a broker for this test alone: `kafka_cluster(nodes=3)`."""
    import contextlib

    from minibroker.testing import Broker

    with contextlib.ExitStack() as running:

        def cluster(nodes: int = 3, **more: Any) -> Broker:
            settings = {**kafka_settings, **more.pop("settings", {})}
            broker = running.enter_context(Broker(settings, nodes=nodes, **more))
            broker.journal.on()
            _watch(request.node, broker)
            return broker

        yield cluster


def _marked(node: Any) -> dict[str, Any]:
    """Return the options of a test's markers; the nearest marker takes precedence."""
    words: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        unknown = [word for word in marker.kwargs if word not in MARKER_WORDS]
        if marker.args or unknown:
            wrong = unknown[0] if unknown else marker.args[0]
            raise pytest.UsageError(f"the marker kafka has no {wrong!r}; it has {', '.join(MARKER_WORDS)}")
        words.update(marker.kwargs)
    return words


def _watch(node: Any, broker: Broker) -> None:
    """Register a broker whose state is reported if the test fails."""
    node.stash.setdefault(SEEN, []).append(broker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker(MARKER) is not None and "kafka_broker" in fixtures and "kafka" not in fixtures:
        raise pytest.UsageError("the marker kafka needs the fixture kafka: kafka_broker is the same for all tests")
    shared = item.session.stash.get(SHARED, None)
    if shared is not None:
        item.stash[BEFORE] = shared.journal.seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker, before in _seen_in(item):
            from minibroker.testing.failure_report import seen_by

            report.sections.append((f"minibroker at {_address(broker)}", seen_by(broker, before)))
    return report


def _seen_in(item: pytest.Item) -> Iterator[tuple[Broker, int]]:
    """Yield the brokers of a test, each with the number of requests that it saw before the test."""
    own = item.stash.get(SEEN, [])
    for broker in own:
        yield broker, 0
    shared = item.session.stash.get(SHARED, None)
    if shared is not None and shared not in own and "kafka_broker" in getattr(item, "fixturenames", ()):
        yield shared, item.stash.get(BEFORE, 0)


def _address(broker: Broker) -> str:
    return broker.bootstrap_servers if broker.is_running else "no address: the broker is down"
