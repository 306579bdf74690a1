"""`minibroker consume`, `produce`, `records` and `brokers` with any Kafka, Apache Kafka among them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from conformance.conftest import Broker
from minibroker.cli.main import main


def run(broker: Broker, *arguments: str, stdin: bytes = b"", status: int = 0) -> str:
    """What a command prints, AssertionError if it ends with another status."""
    done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap_servers], input=stdin)
    assert done.exit_code == status, done.stderr
    return done.stdout


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with three records in each of two partitions, one second after the other."""
    name: str = request.node.name
    run(broker, "topics", "create", name, "--partitions", "2", "--config", "retention.ms=-1")  # they are of long ago
    for number in range(6):
        options = ("--partition", str(number % 2), "--timestamp", f"@{1_700_000_000_000 + 1000 * number}")
        run(broker, "produce", name, *options, "--key", "k", "--header", "h=1", stdin=b"%d" % number)
    return name


def values(broker: Broker, *arguments: str) -> list[str]:
    return run(broker, "consume", *arguments).split()


def test_consume_reads_ranges_of_offsets_and_times_in_a_given_format(broker: Broker, topic: str) -> None:
    assert values(broker, topic, "--last", "3") == ["3", "4", "5"]
    assert values(broker, f"{topic}:1", "--from", "1", "--to", "-1") == ["3"]
    times = ("--from", "@1700000001500", "--to", "@1700000004500")
    assert sorted(values(broker, topic, *times)) == ["2", "3", "4"]
    assert values(broker, f"^{topic}$", "-n", "1", "-f", "%t/%p/%o/%T/%k/%h/%S\\n") == [
        f"{topic}/1/2/1700000005000/k/h=1/1"
    ]
    assert sorted(values(broker, f"{topic[:-1]}?", "--count", "6", "--follow")) == list("012345")


def test_the_format_option_prints_what_that_of_kcat_prints(broker: Broker, topic: str) -> None:
    lines = b'{"key": null, "value": null, "headers": {"n": null, "e": ""}}\n{"key": "", "value_base64": "/wAK"}\n'
    run(broker, "produce", topic, "--input", "json", "--partition", "0", "--header", "h=1", stdin=lines)
    form = "%t|%p|%o|%k|%K|%s|%S|%T|%h|%R|%%|\\n\\t\\r\\\\|\\x41|\\x4z|\n"
    kcat = ["kcat", "-C", "-b", broker.bootstrap_servers, "-t", topic, "-p", "0", "-e", "-q", "-f", form]
    arguments = ["consume", f"{topic}:0", "--format", form, "--bootstrap-server", broker.bootstrap_servers]
    expected = subprocess.run(kcat, capture_output=True, check=True, timeout=60).stdout
    assert CliRunner().invoke(main, arguments).stdout_bytes == expected


def test_consume_continues_at_the_offsets_of_its_group(broker: Broker, topic: str) -> None:
    group = ("--group", f"{topic}-group")
    assert len(values(broker, topic, *group, "--count", "4")) == 4
    assert len(values(broker, topic, *group)) == 2
    assert values(broker, topic, *group) == []
    decoded = run(broker, "consume", "__consumer_offsets", "--decode", "--json").splitlines()
    keys = [json.loads(line)["key_says"] for line in decoded]
    assert f"{topic}-group" in {each["fields"]["group"] for each in keys if each["name"] == "OffsetCommitKey"}


def test_transactions_are_consumed_when_they_are_committed(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        end()
    assert values(broker, f"{topic}:0", "--last", "2") == ["4", "committed"]
    run(broker, "produce", f"{topic}", "--partition", "0", "--transactional-id", topic, stdin=b"whole")
    assert values(broker, f"{topic}:0", "--last", "1") == ["whole"]
    decoded = run(broker, "consume", "__transaction_state", "--decode")
    assert f'"transactional_id": "{topic}"' in decoded


def test_json_output_of_consume_is_produced_unchanged_to_another_topic(broker: Broker, topic: str) -> None:
    printed = run(broker, "consume", topic, "--json")
    run(broker, "topics", "create", f"{topic}-copy", "--partitions", "2", "--config", "retention.ms=-1")
    assert run(broker, "produce", f"{topic}-copy", "--input", "json", stdin=printed.encode()).startswith("6 records")
    copied = run(broker, "consume", f"{topic}-copy", "--json").replace(f"{topic}-copy", topic)
    assert sorted(copied.splitlines()) == sorted(printed.splitlines())


def test_the_records_command_deletes_records(broker: Broker, topic: str) -> None:
    run(broker, "records", "delete", topic, "--before", "0=latest", "--before", "1=1", "--execute")
    assert values(broker, topic) == ["3", "5"]


def test_the_brokers_command_lists_the_brokers_of_kafka(broker: Broker, against: str) -> None:
    found: Any = json.loads(run(broker, "brokers", "list", "--json"))
    assert [each["address"] for each in found["brokers"]] == broker.bootstrap_servers.split(",")
    assert found["cluster_id"] and found["brokers"][0]["release"] == "4.4"
    assert {each["feature"]: each["level"] for each in found["features"]}["metadata.version"] >= 29
    configs = {each["config"] for each in json.loads(run(broker, "brokers", "describe", "--json"))}
    assert configs & {"log.dirs", "log.dir"} and "num.io.threads" not in configs
