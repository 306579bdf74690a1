"""The pytest plugin: fixtures with a broker, a marker for its settings, and the broker's state in reports of failures.

Every pytest of an environment loads it, so it imports nothing more until a test uses a fixture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from minibroker.testing import Broker
    from minibroker.testing.embedded.ports import Ports
    from minibroker.testing.embedded.registry_verbs import RegistryVerbs

MARKER = "kafka"
MARKER_HELP = (
    "kafka(nodes=1, auto_create=True, settings={...}, emulate='2.8', security='SASL_SSL', users={...}, registry=True, "
    "fill={...}): "
    "the broker that the fixture `kafka` is in this test: its nodes, whether topics are created on first use, settings "
    "by Apache Kafka's names, the Kafka release that it emulates, its security and users, its schema registry, and "
    "topics with records"
)
REPORT = "--kafka-report"
REPORT_HELP = "write a page with the topics, groups and frames of the brokers of each failed test"
SECTION = "kafka_section"  # the attribute of a test's report with its section of that page
MARKER_WORDS = ("nodes", "auto_create", "settings", "emulate", "security", "users", "registry", "fill")
SEEN = pytest.StashKey["list[Broker]"]()  # the brokers of a test, in its stash
SHARED = pytest.StashKey["Broker"]()  # `kafka_broker`, in the session's stash
BEFORE = pytest.StashKey[int]()  # how many requests `kafka_broker` had seen when a test began
OWN = pytest.StashKey["list[Broker]"]()  # the brokers of the test that runs, in the session's stash
LEFT: pytest.StashKey[deque[Ports]] = pytest.StashKey()  # the ports of earlier tests, in the session's stash
LEFT_PORTS = 64  # each is an open file

StartBroker = Callable[..., "Broker"]
Made = TypeVar("Made")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("minibroker").addoption(REPORT, metavar="FILE", help=REPORT_HELP)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    path = config.getoption(REPORT, None)
    if path is not None and not hasattr(config, "workerinput"):  # pytest-xdist's workers write no page
        from minibroker.testing.reports.html_report import ReportPage

        config.pluginmanager.register(ReportPage(Path(path), SECTION))


@pytest.fixture(scope="session")
def kafka_settings() -> Mapping[str, object]:
    """Return the settings of all brokers of the session, by Apache Kafka's names. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, kafka_settings: Mapping[str, object]) -> Iterator[Broker]:
    """Return the session's broker, which only `kafka` resets. Its address is `kafka_broker.bootstrap_servers`."""
    from minibroker.testing import Broker

    with Broker(kafka_settings) as broker:
        broker.journal.on()
        request.session.stash[SHARED] = broker
        yield broker


@pytest.fixture
def _kafka_start(request: pytest.FixtureRequest, kafka_settings: Mapping[str, object]) -> StartBroker:
    """Return a function that starts a broker with these options for one test. It ends after the test's report."""
    from minibroker.testing import Broker

    def start_broker(settings: Mapping[str, object] | None = None, **more: Any) -> Broker:
        __tracebackhide__ = True
        broker = Broker({**kafka_settings, **(settings or {})}, **more).start()
        request.session.stash.setdefault(OWN, []).append(broker)
        broker.journal.on()
        _register_broker_for_report(request.node, broker)
        return broker

    return start_broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest, _kafka_start: StartBroker) -> Broker:
    """Return a new broker of the test's own, with the options of the marker `kafka`.

    In a test that also uses `kafka_broker`, and has no options, it is that one after a reset.
    """
    words = _read_markers(request.node)
    fill = words.pop("fill", None)
    if "kafka_registry" in request.fixturenames:
        words.setdefault("registry", True)
    if "kafka_broker" in request.fixturenames and not words:
        broker = _reset_broker(request.getfixturevalue("kafka_broker"))
        _register_broker_for_report(request.node, broker)
    else:
        broker = _fail_without_traceback(lambda: _kafka_start(**words))
    if fill is not None:
        _fail_without_traceback(
            lambda: broker.fill(request.path.parent / fill if isinstance(fill, str | Path) else fill)
        )
    return broker


def _fail_without_traceback(work: Callable[[], Made]) -> Made:
    """Return the result of `work`; fail without a traceback if the marker or `kafka_settings` are wrong."""
    from minibroker.testing.loops import EXPECTED

    try:
        return work()
    except EXPECTED as error:
        said = str(error)
    pytest.fail(f"the fixture kafka: {said}", pytrace=False)  # here, as pytest would print the error above, too


def _reset_broker(broker: Broker) -> Broker:
    """Reset the session's broker, which a test may have stopped."""
    if broker.is_stopped:
        broker.start()
    elif not broker.is_running:
        broker.restart()
    broker.reset()
    broker.journal.on()
    return broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka: Broker) -> str:
    """Return the name of an empty topic."""
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in request.node.name)[:200].strip("-")
    kafka.create_topic(name)
    return name


@pytest.fixture
def kafka_registry(kafka: Broker) -> RegistryVerbs:
    """Return the schema registry of the broker `kafka`. Its address is `kafka_registry.url`."""
    return kafka.registry


@pytest.fixture
def kafka_cluster(_kafka_start: StartBroker) -> StartBroker:
    """Return a function that starts a broker for this test alone: `kafka_cluster(nodes=3)`."""

    def start_cluster(nodes: int = 3, **more: Any) -> Broker:
        __tracebackhide__ = True
        return _kafka_start(nodes=nodes, **more)

    return start_cluster


def _read_markers(node: Any) -> dict[str, Any]:
    """Return the options of a test's markers; the nearest marker takes precedence."""
    words: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        unknown = [word for word in marker.kwargs if word not in MARKER_WORDS]
        if marker.args or unknown:
            wrong = unknown[0] if unknown else marker.args[0]
            pytest.fail(f"the marker kafka has no {wrong!r}; it has {', '.join(MARKER_WORDS)}", pytrace=False)
        words.update(marker.kwargs)
    return words


def _register_broker_for_report(node: Any, broker: Broker) -> None:
    """Register a broker whose state is reported if the test fails."""
    node.stash.setdefault(SEEN, []).append(broker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker(MARKER) is not None and "kafka_broker" in fixtures and "kafka" not in fixtures:
        pytest.fail("the marker kafka needs the fixture kafka: kafka_broker is the same for all tests", pytrace=False)
    shared = item.session.stash.get(SHARED, None)
    if shared is not None:
        item.stash[BEFORE] = shared.journal.seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        _add_broker_sections(report, list(_iterate_brokers(item)), item.config.getoption(REPORT, None))
    if call.when == "teardown":  # after all fixtures, which may need it
        item.stash[SEEN] = []
        _end_brokers_of_last_test(item.session)
    return report


def _add_broker_sections(report: pytest.TestReport, brokers: list[tuple[Broker, int]], path: str | None) -> None:
    """Add what the brokers of a failed test have seen to its report, and its section for the page at `path`."""
    if not brokers:
        return
    from minibroker.testing.reports.failure_report import format_report
    from minibroker.testing.reports.html_report import format_section, make_anchor

    link = None if path is None else f"{path}#{make_anchor(report.nodeid, report.when)}"
    for broker, before in brokers:
        report.sections.append((f"minibroker at {_format_address(broker)}", format_report(broker, before, link)))
    if path is not None:
        # pytest-xdist sends a report's attributes to the process that writes the page.
        vars(report)[SECTION] = format_section(report.nodeid, report.when, report.longreprtext, brokers)


@pytest.hookimpl(trylast=True)  # after the fixtures of a test that Ctrl-C has ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_brokers_of_last_test(session)
    for ports in session.stash.get(LEFT, ()):
        ports.close()


def _end_brokers_of_last_test(session: pytest.Session) -> None:
    """End the brokers of a test that is over.

    Clients that it left open find nobody there any more: its ports stay reserved, so that no broker of a later test
    gets one of them.
    """
    left = session.stash.setdefault(LEFT, deque())
    for broker in session.stash.get(OWN, []):
        ports = broker.kill_and_reserve_ports()
        if ports is not None:
            left.append(ports)
    session.stash[OWN] = []
    while len(left) > 1 and sum(ports.count for ports in left) > LEFT_PORTS:
        left.popleft().close()


def _iterate_brokers(item: pytest.Item) -> Iterator[tuple[Broker, int]]:
    """Yield the brokers of a test, each with the number of requests that it saw before the test."""
    own = item.stash.get(SEEN, [])
    for broker in own:
        yield broker, 0
    shared = item.session.stash.get(SHARED, None)
    if shared is not None and shared not in own and "kafka_broker" in getattr(item, "fixturenames", ()):
        yield shared, item.stash.get(BEFORE, 0)


def _format_address(broker: Broker) -> str:
    return broker.bootstrap_servers if broker.is_running else "no address: the broker is down"
