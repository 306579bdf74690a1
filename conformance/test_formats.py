"""Clients of 2014 to today on shared topics: each version of Kafka's Java client reads what every other one wrote.

Every version is a process of its own, with `programs/old_java`. Apache Kafka 4 does not serve most of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from conformance import builds
from conformance.clients import JAVA_OPTIONS, PATIENCE_S
from conformance.conftest import Broker

pytestmark = pytest.mark.minibroker_only

VERSIONS = (*("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.9.2", "4.4.0"),)
WITHOUT_ZSTD = VERSIONS[:7]
COUNT = 60  # what each writes to a topic
CODECS = ("none", "gzip", "snappy", "lz4")
SHARED = {"shared-0": "0.9.0", "shared-1": "0.10.2", "shared-2": "4.0"}  # by name, message.format.version
# broker.version.fallback of librdkafka, which then asks in the versions of that time
LIBRDKAFKA_AS = ("0.8.2.0", "0.9.0.1", "0.10.0.1")


def codecs_of(version: str) -> tuple[str, ...]:
    return CODECS if version in WITHOUT_ZSTD else (*CODECS, "zstd")


def run(version: str, program: str, *arguments: str) -> None:
    command = ["java", *JAVA_OPTIONS, "-cp", builds.old_java(version), program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, f"{program} of {version}:\n{result.stdout[-2000:]}{result.stderr[-4000:]}"


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Iterator[str]:
    """The bootstrap servers of a broker with a topic for each writer and codec, and some that all share."""
    kept = {"retention.ms": "-1"}  # the records' times are of 2023
    own = [NewTopic(f"{version}-{codec}", 3, config=kept) for version in VERSIONS for codec in codecs_of(version)]
    shared = [NewTopic(name, 3, config={**kept, "message.format.version": of}) for name, of in SHARED.items()]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics(own + shared).values():
        created.result(60)
    yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def written(topics: str) -> str:
    """The same, once every version has written everywhere."""
    for version in VERSIONS:
        idempotent = str(version not in WITHOUT_ZSTD).lower()
        own = [f"{version}-{codec}:{codec}:{idempotent}" for codec in codecs_of(version)]
        shared = [f"{name}:{codec}:false" for name in SHARED for codec in CODECS]
        run(version, "OldWriter", topics, version, *own, *shared)
    return topics


def names_for(reader: str) -> list[str]:
    """All topics that the reader can read, with what is left of their records' times."""
    codecs = codecs_of(reader)
    own = [f"{version}-{codec}:2" for version in VERSIONS for codec in codecs_of(version) if codec in codecs]
    return [*own, *(f"{name}:{name[-1]}" for name in SHARED)]


@pytest.mark.parametrize("reader", VERSIONS)
def test_a_client_of_each_version_consumes_what_clients_of_all_versions_produced(written: str, reader: str) -> None:
    """It assigns itself the partitions; one with a consumer of today then reads them again as a member of a group."""
    names = names_for(reader)
    shared = len(SHARED) * len(VERSIONS) * len(CODECS)
    records = COUNT * (len(names) - len(SHARED) + shared)
    if reader.startswith("0.8."):
        run(reader, "OldReader", written, str(records), *names)
        return
    group = f"group-of-{reader}"
    run(reader, "OldConsumer", written, str(records), group, *names)
    admin = AdminClient({"bootstrap.servers": written})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    committed = asked[group].result(60).topic_partitions
    assert sum(partition.offset for partition in committed) == records


# --- librdkafka as of then ----------------------------------------------------------------------


def kcat(bootstrap: str, fallback: str, *arguments: str, stdin: str = "") -> str:
    """Return what kcat prints if it takes the broker for one of that version, without asking it."""
    settings = ("api.version.request=false", f"broker.version.fallback={fallback}", "broker.address.family=v4")
    settings += ("fetch.wait.max.ms=10",)  # a reader is at the end only when a fetch brings nothing
    options = [option for setting in settings for option in ("-X", setting)]
    result = subprocess.run(
        ["kcat", "-b", bootstrap, "-q", *options, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def read_by_kcat(bootstrap: str, fallback: str, topic: str) -> list[tuple[int, str]]:
    """(partition, key and value with their lengths) of all records."""
    found = kcat(bootstrap, fallback, "-C", "-t", topic, "-o", "beginning", "-e", "-f", r"%p|%K %S %k %s\n")
    lines = [line.split("|", 1) for line in found.splitlines()]
    return sorted((int(partition), rest) for partition, rest in lines)


@pytest.mark.parametrize("fallback", LIBRDKAFKA_AS)
def test_an_old_librdkafka_consumes_what_all_versions_produced(written: str, fallback: str) -> None:
    for version in VERSIONS:
        for codec in CODECS:
            found = read_by_kcat(written, fallback, f"{version}-{codec}")
            assert len(found) == COUNT
            assert found == read_by_kcat(written, "0.11.0.0", f"{version}-{codec}")
    for name in SHARED:
        assert len(read_by_kcat(written, fallback, name)) == COUNT * len(VERSIONS) * len(CODECS)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fallback", LIBRDKAFKA_AS)
def test_records_of_an_old_librdkafka_are_consumed(topics: str, fallback: str, codec: str) -> None:
    name = f"by-kcat-{fallback}-{codec}"
    admin = AdminClient({"bootstrap.servers": topics})
    admin.create_topics([NewTopic(name, 1)])[name].result(60)
    lines = [f"key-{index}:{'value' * (index % 50)}{index}" for index in range(500)]
    kcat(topics, fallback, "-P", "-t", name, "-K:", "-z", codec, stdin="\n".join(lines))
    for reader in (*LIBRDKAFKA_AS, "0.11.0.0"):
        found = kcat(topics, reader, "-C", "-t", name, "-o", "beginning", "-e", "-f", r"%o %k:%s\n").splitlines()
        assert found == [f"{offset} {line}" for offset, line in enumerate(lines)]
