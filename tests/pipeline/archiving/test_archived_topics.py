"""Identities and configs of topics travel with an archive: of a directory or a broker, and to a replay's topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.pipeline.archiving.archived_topics import (
    NeededTopic,
    choose_target_configs,
    describe_configs,
    find_topic_configs,
    find_topic_ids,
    prepare_topics,
)
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import ReadOptions, parse_options
from tests.pipeline.logs import records, write_log
from tests.running import running_broker

SET = {"cleanup.policy": "compact", "retention.ms": "5000", "max.message.bytes": "2000000"}
KAFKAS_FORM = "MDEyMzQ1Njc4OWFiY2RlZg"


def options(**where: str) -> ReadOptions:
    named = {name.replace("_", "."): text for name, text in where.items()}
    return parse_options({"subscribePattern": ".*", **named}, "records")


def test_topic_ids_are_read_from_a_directory(tmp_path: Path) -> None:
    write_log(tmp_path, "t", 0, records(1), topic_id=b"0123456789abcdef")
    write_log(tmp_path, "old", 0, records(1))
    found = find_topic_ids(options(path=str(tmp_path)), ["t", "old"])
    assert found == {"t": KAFKAS_FORM, "old": f"the one in {tmp_path}"}


def test_an_invalid_topic_id_is_an_error(tmp_path: Path) -> None:
    directory = write_log(tmp_path, "t", 0, records(1), topic_id=b"0123456789abcdef")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    with pytest.raises(OptionError, match="partition.metadata is malformed"):
        find_topic_ids(options(path=str(tmp_path)), ["t"])


def test_a_directory_and_its_broker_give_the_same_topic_ids_and_configs(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("prices", 1, config=SET), NewTopic("orders", 1)]).values():
            made.result()
        of_broker = options(kafka_bootstrap_servers=broker.bootstrap_servers)
        of_directory = options(path=str(tmp_path / "data"))
        ids = find_topic_ids(of_broker, ["prices"])
        assert ids == find_topic_ids(of_directory, ["prices"])
        assert len(ids["prices"]) == len(KAFKAS_FORM)
        assert find_topic_configs(of_broker, ["prices", "orders"]) == {"prices": SET}
        assert find_topic_configs(of_directory, ["prices", "orders"]) == {"prices": SET}

        archived = choose_target_configs({"prices": SET}, {"prices": "again"}, ["prices"])
        with Client(broker.bootstrap_servers) as client:
            needed = {"again": NeededTopic(1, None)}
            assert prepare_topics(client, needed, {"max.message.bytes": ""}, archived=archived).made == ["again"]
            set_now = describe_configs(client, "again", only_set=True)
            assert set_now == {
                "cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "retention.ms": "-1",
            }  # fmt: skip


def test_the_first_of_two_archived_topics_determines_the_configs_of_a_common_target() -> None:
    configs = {"a": {"compression.type": "zstd"}, "b": {"compression.type": "lz4"}}
    assert choose_target_configs(configs, {"a": "c", "b": "c"}, ["b", "a"]) == {"c": {"compression.type": "zstd"}}
