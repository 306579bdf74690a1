"""The configs of topics travel with an archive: from a directory or a broker, and to the topics that a replay makes."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.jobs.archived_configs import described, for_replay, topic_configs
from minibroker.pipeline.jobs.replay_targets import Needed, prepare_topics
from minibroker.pipeline.options import parse_options
from tests.running import running_broker

SET = {"cleanup.policy": "compact", "retention.ms": "5000", "max.message.bytes": "2000000"}


def test_a_directory_and_its_broker_have_the_same_configs_and_a_new_topic_gets_them(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("prices", 1, config=SET), NewTopic("orders", 1)]).values():
            made.result()
        where = {"subscribePattern": ".*"}
        of_broker = parse_options({**where, "kafka.bootstrap.servers": broker.bootstrap_servers}, "records")
        assert topic_configs(of_broker, ["prices", "orders"]) == {"prices": SET}
        of_directory = parse_options({**where, "path": str(tmp_path / "data")}, "records")
        assert topic_configs(of_directory, ["prices", "orders"]) == {"prices": SET}

        archived = for_replay({"prices": SET}, {"prices": "again"}, ["prices"])
        with Client(broker.bootstrap_servers) as client:
            needed = {"again": Needed(1, None)}
            assert prepare_topics(client, needed, {"max.message.bytes": ""}, archived=archived).made == ["again"]
            set_now = described(client, "again", only_set=True)
            assert set_now == {
                "cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "retention.ms": "-1",
            }  # fmt: skip
            (remark,) = prepare_topics(
                client, {"orders": Needed(1, None)}, archived={"orders": archived["again"]}
            ).remarks[:1]
            assert remark == "topic orders has cleanup.policy=delete, the archived one had compact"


def test_of_two_topics_that_go_to_one_the_first_counts() -> None:
    configs = {"a": {"compression.type": "zstd"}, "b": {"compression.type": "lz4"}}
    assert for_replay(configs, {"a": "c", "b": "c"}, ["b", "a"]) == {"c": {"compression.type": "zstd"}}
