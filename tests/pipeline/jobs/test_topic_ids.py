"""What tells topics of one name apart: their ids, in a directory and of a broker; else where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.pipeline.jobs.topic_ids import topic_ids
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import ReadOptions, parse_options
from tests.pipeline.jobs.logs import records, write_log
from tests.running import running_broker

KAFKAS_FORM = "MDEyMzQ1Njc4OWFiY2RlZg"


def options(**where: str) -> ReadOptions:
    named = {name.replace("_", "."): text for name, text in where.items()}
    return parse_options({"subscribePattern": ".*", **named}, "records")


def test_a_directory_has_the_ids_of_its_topics(tmp_path: Path) -> None:
    write_log(tmp_path, "t", 0, records(1), topic_id=b"0123456789abcdef")
    write_log(tmp_path, "old", 0, records(1))
    found = topic_ids(options(path=str(tmp_path)), ["t", "old"])
    assert found == {"t": KAFKAS_FORM, "old": f"the one in {tmp_path}"}


def test_an_invalid_topic_id_is_an_error(tmp_path: Path) -> None:
    directory = write_log(tmp_path, "t", 0, records(1), topic_id=b"0123456789abcdef")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    with pytest.raises(OptionError, match="partition.metadata is malformed"):
        topic_ids(options(path=str(tmp_path)), ["t"])


def test_a_topic_has_the_same_id_by_its_broker_and_in_its_directory(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        client.create_topics([NewTopic("t", 1)])["t"].result()
        by_broker = topic_ids(options(kafka_bootstrap_servers=broker.bootstrap_servers), ["t"])
        assert by_broker == topic_ids(options(path=str(tmp_path / "data")), ["t"])
        assert len(by_broker["t"]) == len(KAFKAS_FORM)
