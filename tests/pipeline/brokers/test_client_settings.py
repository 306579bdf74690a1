"""What Spark's users write after `kafka.`: what is passed on, and what only Spark refuses."""

from __future__ import annotations

import pickle

import pytest

from minibroker.client.connection_settings import INT32_MAX, RemainingSettings
from minibroker.pipeline.brokers.broker_source import FetchSettings
from minibroker.pipeline.brokers.client import make_client_settings
from minibroker.pipeline.log_source import OptionError
from tests.cases import for_each

SERVER = "127.0.0.1:9092"


def test_settings_of_connections_are_passed_to_the_client() -> None:
    settings = make_client_settings(SERVER, {"client.id": "me", "request.timeout.ms": "1"}, "somebody")
    assert (settings.client_id, settings.request_timeout_ms) == ("me", 1)
    assert (settings.bootstrap_servers, settings.max_frame_bytes) == (SERVER, INT32_MAX)


@for_each(
    ("name", "value", "message"),
    [
        ("colour", "1", "kafka.colour is not known"),
        ("chek.crcs", "1", "kafka.chek.crcs is not known; did you mean check.crcs"),
        ("key.deserializer", "x", "kafka.key.deserializer cannot be set: keys are bytes: cast the column"),
        ("auto.offset.reset", "earliest", "kafka.auto.offset.reset cannot be set: use the option startingOffsets"),
        ("enable.auto.commit", "true", "kafka.enable.auto.commit cannot be set"),
        ("interceptor.classes", "x", "kafka.interceptor.classes cannot be set"),
        ("bootstrap.servers", "a:1", "kafka.bootstrap.servers cannot be set"),
        ("check.crcs", "false", "kafka.check.crcs can only be true, not 'false'"),
        ("request.timeout.ms", "soon", "kafka.request.timeout.ms must be a whole number, not 'soon'"),
    ],
)
def test_invalid_settings_are_rejected_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_client_settings(SERVER, {name: value})


def test_settings_that_repeat_the_value_fixed_by_the_client_are_accepted() -> None:
    make_client_settings(SERVER, {"check.crcs": "true", "allow.auto.create.topics": "False"})


def test_a_misspelt_client_setting_suggests_names_of_fetch_settings_too() -> None:
    settings = RemainingSettings({"fetch.max.byte": "1", "fetch.max.bytes": "2"})
    FetchSettings.pop_from_settings(settings)
    with pytest.raises(OptionError, match=r"did you mean fetch\.max\.bytes( or .*)?\?"):
        make_client_settings(SERVER, pickle.loads(pickle.dumps(settings)))
