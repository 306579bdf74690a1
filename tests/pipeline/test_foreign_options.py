"""Options that only Spark's own connector needs: known by name, in any case, and told in one line."""

from __future__ import annotations

import pytest

from minibroker.pipeline.options import (
    drop_ignored_options,
    list_options_without_meaning,
    warn_of_ignored_options,
)
from minibroker.pipeline.sink.sink_settings import parse_settings


def test_readers_and_writers_ignore_different_kafka_options() -> None:
    options = {"GroupIdPrefix": "g", "kafka.client.rack": "r", "session.timeout.ms": "1", "topic": "t"}
    assert list_options_without_meaning(options) == ["groupIdPrefix", "kafka.client.rack"]
    assert list_options_without_meaning(options, writing=True) == ["kafka.client.rack"]
    assert drop_ignored_options(options, list_options_without_meaning(options)) == {
        "session.timeout.ms": "1",
        "topic": "t",
    }


def test_a_writer_accepts_settings_without_effect() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "kafka.metadata.max.age.ms": "5"}
    assert parse_settings(options).ignored == ("kafka.metadata.max.age.ms",)


def test_ignored_options_are_named_in_one_line_if_there_are_any(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_ignored_options(())
    warn_of_ignored_options(["groupIdPrefix", "kafka.group.id"])
    assert caplog.messages == ["ignored, as without meaning here: groupIdPrefix, kafka.group.id"]
