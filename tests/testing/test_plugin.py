"""The pytest plugin, in projects of its users: fixtures, the marker, reports of failures, and what it costs unused."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"

CLIENTS = """
from confluent_kafka import Consumer, Producer
import pytest

def produce(broker, *values, topic="t"):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
"""


# They take half of the CPU time of such a run, and most tests need none of them.
OTHER_PLUGINS = ("anyio", "asyncio", "hypothesispytest", "timeout", "xdist", "xdist.looponfail")


def run(pytester: pytest.Pytester, source: str, *arguments: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
    """Run a file with our plugin, and with these of others."""
    pytester.makepyfile(CLIENTS + source)
    without = [f"-pno:{name}" for name in OTHER_PLUGINS if name.partition(".")[0] not in plugins]
    plain = ("-p", "minibroker.testing.plugin", "-p", "no:cacheprovider", "--strict-markers")
    return pytester.runpytest_subprocess(*plain, *without, *arguments)


def test_each_test_gets_its_own_broker(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
where = set()

@pytest.mark.parametrize("number", range(3))
def test_alone(kafka, number):
    assert kafka.records("t") == []
    where.add(kafka.bootstrap_servers)
    assert len(where) == number + 1
    produce(kafka, "a")
    assert [record.text for record in kafka.expect("t")] == ["a"]
""",
    )
    result.assert_outcomes(passed=3)


def test_clients_left_open_by_a_failed_test_do_not_reconnect(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import threading

failures = []  # to connect
quick = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "error_cb": failures.append}

def test_fails(kafka):
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "left", **quick}
    producer = Producer({**settings, "transactional.id": "x"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", "of an open transaction")
    producer.flush(20)
    consumer = Consumer({**settings, "group.id": "g"})
    consumer.subscribe(["t"])

    def go_on():
        while True:
            consumer.poll(0.05)
            producer.poll(0)

    threading.Thread(target=go_on, daemon=True).start()
    kafka.wait_for_group("g", members=1, timeout=20)
    failures.clear()
    assert False

def test_next(kafka):
    while not failures:  # of both, after the last test
        kafka.assert_nothing_produced("t", during=0.05)
    kafka.produce("t", "mine")
    assert [record.text for record in kafka.records("t")] == ["mine"]
    assert kafka.requests() == []
    with pytest.raises(AssertionError, match="there is no such group, and no other"):
        kafka.wait_for_group("g", timeout=0.01)
""",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_fixtures_still_have_their_broker_after_ctrl_c(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import os, signal

@pytest.fixture
def filled(kafka):
    yield
    kafka.produce("t", "a")
    print("still", len(kafka.records("t")))

def test_interrupted(filled, kafka):
    os.kill(os.getpid(), signal.SIGINT)
    kafka.expect("t", timeout=60)
""",
        "-s",
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*still 1*"])
    assert "NotRunning" not in result.stdout.str()


def test_the_session_broker_is_empty_for_each_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
where = set()

@pytest.mark.parametrize("number", range(3))
def test_alone(kafka, kafka_broker, number):
    assert kafka is kafka_broker and kafka.records("t") == []
    where.add(kafka.bootstrap_servers)
    assert len(where) == 1
    produce(kafka, "a")
    assert [record.text for record in kafka.expect("t")] == ["a"]
""",
    )
    result.assert_outcomes(passed=3)


def test_a_killed_or_time_shifted_session_broker_is_reset_for_the_next_test(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
def test_kill(kafka):
    kafka.clock.advance("7 days")
    kafka.clock.freeze()
    kafka.faults.add(close="before")
    kafka.kill()

def test_next(kafka):
    import time
    assert abs(kafka.clock.now_ms() - time.time() * 1000) < 60_000 and not kafka.clock.frozen
    produce(kafka, "a")
""",
    )
    result.assert_outcomes(passed=2)


def test_the_fixtures_kafka_topic_and_kafka_cluster_create_a_topic_and_clusters(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.parametrize("value", ["a/b c", "ü"])
def test_topic(kafka, kafka_topic, value):
    assert kafka.records(kafka_topic) == []
    produce(kafka, value, topic=kafka_topic)
    assert kafka.expect(kafka_topic)[0].text == value

def test_cluster(kafka_cluster):
    first, second = kafka_cluster(nodes=3), kafka_cluster(nodes=1, settings={"num.partitions": 2})
    produce(first, "a")
    assert second.records("t") == [] and first.nodes == 3
""",
    )
    result.assert_outcomes(passed=3)


def test_the_pytest_marker_configures_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", orders="orders: [first, {key: k, value: {id: 2}}]\n")
    result = run(
        pytester,
        """
@pytest.mark.kafka(nodes=3, settings={"num.partitions": 6})
def test_nodes(kafka):
    assert kafka.bootstrap_servers.count(",") == 2
    produce(kafka, "a")
    assert len(kafka.running.cluster.image.topics["t"].partitions) == 6

@pytest.mark.kafka(auto_create=False)
class TestClass:
    def test_no_topics(self, kafka):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.timeout.ms": 500})
        failed = []
        producer.produce("t", "a", on_delivery=lambda error, _: failed.append(error))
        producer.flush(20)
        assert failed[0] is not None

    @pytest.mark.kafka(fill={"t": ["a", {"key": "k", "value": "b"}], "u": {"partitions": 2}})
    def test_filled(self, kafka):
        assert [(r.key, r.text) for r in kafka.records("t")] == [(None, "a"), (b"k", "b")]

@pytest.mark.kafka(emulate="0.10.2")
def test_old(kafka):
    produce(kafka, "a")
    assert kafka.records("t")[0].magic == 1

@pytest.mark.kafka(fill="orders.yaml")
def test_filled_from_a_file_beside_the_test(kafka):
    assert [record.text for record in kafka.records("orders")] == ["first", '{"id": 2}']
""",
    )
    result.assert_outcomes(passed=5)


def test_an_invalid_marker_or_one_without_its_fixture_is_an_error(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.kafka(nodez=3)
def test_unknown(kafka): pass

@pytest.mark.kafka(3)
def test_nameless(kafka): pass

@pytest.mark.kafka(nodes=3)
class TestClass:
    def test_other(self, kafka_broker): pass
    def test_none(self): pass
    def test_both(self, kafka, kafka_broker): assert kafka.nodes == 3
""",
    )
    result.assert_outcomes(passed=2, errors=3)
    known = "it has nodes, auto_create, settings, emulate, security, users, registry, fill"
    result.stdout.fnmatch_lines(
        [
            f"the marker kafka has no 'nodez'; {known}",
            f"the marker kafka has no 3; {known}",
            "*the marker kafka needs the fixture kafka*",
        ]
    )


def test_a_stopped_session_broker_is_started_for_the_next_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_stop(kafka):
    kafka.stop()

def test_next(kafka):
    produce(kafka, "a")
    assert kafka.requests("Produce")
""",
    )
    result.assert_outcomes(passed=2)


def test_other_clients_can_connect_to_the_fixtures(pytester: pytest.Pytester) -> None:
    """kafka-python: a producer of the session, whose connection every reset leaves, and what a failure tells of it."""
    result = run(
        pytester,
        """
from kafka import KafkaConsumer, KafkaProducer

@pytest.fixture(scope="module")
def producer(kafka_broker):
    made = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, retry_backoff_ms=20)
    yield made
    made.close()

def first(broker, topic):
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    try:
        return next(consumer).value
    finally:
        consumer.close()

@pytest.mark.parametrize("number", range(2))
def test_alone(kafka, kafka_topic, producer, number):
    assert producer.send(kafka_topic, b"a").get(20).offset == 0
    assert producer.send("t", b"b").get(20).offset == 0
    assert first(kafka, kafka_topic) == b"a"

@pytest.mark.kafka(nodes=2, fill={"filled": ["c"]})
def test_filled(kafka):
    assert first(kafka, "filled") == b"c"

def test_cluster(kafka_cluster):
    kafka = kafka_cluster(nodes=3)
    kafka.produce("t", "d")
    assert first(kafka, "t") == b"d"

def test_fails(kafka, producer):
    producer.send("t", b"e").get(20)
    assert False
""",
    )
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["topic t: partitions end at 1", "#*kafka-python*: Produce * answered*"])


def test_a_conftest_overrides_the_settings_of_all_brokers(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import pytest\n@pytest.fixture(scope='session')\ndef kafka_settings(): return {'num.partitions': 4}\n"
    )
    result = run(
        pytester,
        """
def test_settings(kafka):
    produce(kafka, "a")
    assert len(kafka.running.cluster.image.topics["t"].partitions) == 4
""",
    )
    result.assert_outcomes(passed=1)


def test_a_failed_test_shows_the_requests_of_its_broker(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_fails(kafka):
    kafka.faults.add(api="Fetch", close="before", name="no reading")
    produce(kafka, "a")
    assert False

def test_passes(kafka):
    produce(kafka, "other", topic="unseen")
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*minibroker at 127.0.0.1:*",
            "topic t: partitions end at 1",
            "<fault 1: no reading (0 hits of 0 matches)>",
            "#*rdkafka: Produce * answered*",
        ]
    )
    assert "unseen" not in result.stdout.str()


def test_a_failure_in_a_fixture_shows_the_requests(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture
def full(kafka):
    produce(kafka, "a", topic="before")
    assert False

@pytest.fixture
def emptied(kafka):
    yield
    produce(kafka, "a", topic="after")
    assert False

def test_errs_before(full): pass
def test_errs_after(emptied): pass
def test_passes(kafka): pass  # the last one's broker is down when its error is told
""",
    )
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["topic before: partitions end at 1", "topic after: partitions end at 1"])


def test_a_failure_with_the_sessions_broker_shows_only_this_tests_requests(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture(scope="module")
def address(kafka_broker):
    return kafka_broker

def test_passes(address):
    produce(address, "a", topic="first")

def test_fails(address):
    Producer({"bootstrap.servers": address.bootstrap_servers}).list_topics("second")
    assert False
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["topic first: partitions end at 1", "(* older requests)", "#*rdkafka: Metadata *"])
    assert ": Produce " not in result.stdout.str()


def test_the_plugin_works_with_xdist(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.parametrize("number", range(4))
def test_it(kafka, number):
    produce(kafka, str(number))
    assert [record.text for record in kafka.records("t")] == [str(number)]
""",
        "-n",
        "2",
        plugins=("xdist",),
    )
    result.assert_outcomes(passed=4)


def test_the_plugin_works_with_pytest_asyncio_and_anyio(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
from aiokafka import AIOKafkaProducer

async def use(kafka):
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("t", b"a")
    await producer.stop()
    assert (await kafka.aexpect("t"))[0].text == "a"

@pytest.mark.asyncio
async def test_asyncio(kafka):
    await use(kafka)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(kafka):
    await use(kafka)

@pytest.mark.anyio
async def test_either_backend(kafka, anyio_backend):
    with pytest.raises(RuntimeError, match="await aproduce"):
        kafka.produce("t", "a")
    await kafka.aproduce("t", "a")
    assert (await kafka.aexpect("t"))[0].text == "a"
    with pytest.raises(AssertionError, match="2 records were expected"):
        await kafka.aexpect("t", 2, timeout="10 ms")
    import anyio
    with anyio.move_on_after(0.05):
        await kafka.aexpect("t", 2, timeout="1 hour")
    while kafka.call_on_loop(lambda: kafka.watch in kafka.interceptors):
        await anyio.sleep(0)
    if anyio_backend == "trio":
        from minibroker.testing import Broker
        with pytest.raises(RuntimeError, match="use `with Broker"):
            async with Broker():
                pass
""",
        "-o",
        "asyncio_mode=strict",
        plugins=("anyio", "asyncio"),
    )
    result.assert_outcomes(passed=4)


def test_the_pytest_plugin_imports_no_broker_if_it_is_unused(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_nothing():
    import sys
    ours = sorted(name for name in sys.modules if name.startswith("minibroker") and "_version" not in name)
    assert ours == ["minibroker", "minibroker.testing", "minibroker.testing.plugin"]
    assert not {"asyncio.runners", "uvloop", "yaml", "numpy"} & set(sys.modules)
""".replace("asyncio.runners", "lz4"),
    )
    result.assert_outcomes(passed=1)


def test_a_project_with_equally_named_packages_is_unaffected(pytester: pytest.Pytester) -> None:
    for name in ("broker", "storage", "protocol", "pipeline", "testing"):
        package = pytester.mkpydir(name)
        (package / "mine.py").write_text(f"NAME = {name!r}\n")
    result = run(
        pytester,
        """
import broker.mine, storage.mine, protocol.mine, pipeline.mine, testing.mine

def test_mine(kafka):
    produce(kafka, broker.mine.NAME)
    assert kafka.expect("t")[0].text == "broker"
    assert (storage.mine.NAME, protocol.mine.NAME) == ("storage", "protocol")
""",
    )
    result.assert_outcomes(passed=1)


def test_an_invalid_setting_is_reported_once(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture(scope="session")
def kafka_settings(): return {"nonsense": 1}
def test_it(kafka): pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the fixture kafka: *nonsense*"])
    result.stdout.no_fnmatch_line("*During handling of the above exception*")
