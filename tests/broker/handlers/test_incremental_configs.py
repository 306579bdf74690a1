"""The settings of groups and of subscriptions to metrics, and the levels of loggers: described, changed and refused.

Those of topics are tested in `test_configs.py`, those of brokers in `test_broker_configs.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import AlterConfigsRequest
from tests.broker.handlers.config_requests import DELETE, SET, alter, describe, entry, value
from tests.broker.harness import Harness
from tests.cases import for_each

BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
APPEND = 2
DYNAMIC_DEFAULT, STATIC, DEFAULT, OF_LOGGER, OF_METRICS = 3, 4, 5, 6, 7
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
DONE = (ErrorCode.NONE, None)


# --- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_group_settings_take_effect_immediately_and_survive_a_restart(harness: Harness, crash: bool) -> None:
    alter(harness, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"))
    assert (get_group_config(harness.cluster, "g", SESSION), get_group_config(harness.cluster, "h", SESSION)) == (
        50_000,
        45_000,
    )
    harness.restart(crash=crash)
    assert get_group_config(harness.cluster, "g", HEARTBEAT) == 6000
    alter(harness, GROUP, "g", (SESSION, DELETE, None))
    assert get_group_config(harness.cluster, "g", SESSION) == 45_000


def test_all_settings_of_a_group_are_set_at_once(harness: Harness) -> None:
    alter(harness, GROUP, "g", (HEARTBEAT, SET, "6000"))
    shape = AlterConfigsRequest.AlterConfigsResource
    line = shape.AlterableConfig(name=SESSION, value="50000")
    request = AlterConfigsRequest(resources=[shape(resource_type=GROUP, resource_name="g", configs=[line])])
    (answer,) = harness.request(request).responses
    assert answer.error_code == ErrorCode.NONE
    assert harness.cluster.image.get_configs(GROUP, "g") == {SESSION: "50000"}


# --- subscriptions to metrics -------------------------------------------------------------------


def test_a_telemetry_subscription_is_stored_and_described(harness: Harness) -> None:
    assert value(harness, CLIENT_METRICS, "m", "interval.ms") == ("300000", DEFAULT)
    lines = ("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*"), ("metrics", SET, "org.apache.")
    assert alter(harness, CLIENT_METRICS, "m", *lines) == DONE
    harness.restart()
    assert value(harness, CLIENT_METRICS, "m", "match") == ("client_id=a.*", OF_METRICS)
    assert alter(harness, CLIENT_METRICS, "m", ("metrics", SET, "org.apache.,other.")) == DONE
    assert value(harness, CLIENT_METRICS, "m", "metrics") == ("org.apache.,other.", OF_METRICS)


@for_each(
    ("name", "line", "code"),
    [
        ("", ("interval.ms", SET, "1000"), INVALID_REQUEST),
        ("m", ("interval.ms", SET, "99"), INVALID_REQUEST),
        ("m", ("interval.ms", SET, "3600001"), INVALID_REQUEST),
        ("m", ("interval.ms", SET, "x"), INVALID_CONFIG),
        ("m", ("nope", SET, "1"), INVALID_REQUEST),
        ("m", ("match", SET, "nope=a"), INVALID_CONFIG),
        ("m", ("match", SET, "client_id"), INVALID_CONFIG),
        ("m", ("match", SET, "client_id=("), INVALID_CONFIG),
    ],
)
def test_an_invalid_telemetry_subscription_is_rejected(
    harness: Harness, name: str, line: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter(harness, CLIENT_METRICS, name, line)[0] == code
    assert harness.cluster.image.configs.get((CLIENT_METRICS, name), {}) == {}


# --- loggers ------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger that nobody has set a level of; the root's is INFO meanwhile."""
    root, made = logging.getLogger(), logging.getLogger("minibroker.tests.levels")
    before = root.level
    root.setLevel(logging.INFO)
    yield made
    root.setLevel(before)
    made.setLevel(logging.NOTSET)


def test_a_logger_level_takes_effect_immediately_and_can_be_reset(harness: Harness, logger: logging.Logger) -> None:
    assert value(harness, BROKER_LOGGER, "1", logger.name) == ("INFO", OF_LOGGER)
    assert alter(harness, BROKER_LOGGER, "1", (logger.name, SET, "DEBUG"), ("root", SET, "ERROR")) == DONE
    assert logger.isEnabledFor(logging.DEBUG)
    levels = {one.name: one.value for one in describe(harness, BROKER_LOGGER, "1").configs}
    assert (levels["root"], levels[logger.name]) == ("ERROR", "DEBUG")
    assert alter(harness, BROKER_LOGGER, "1", (logger.name, DELETE, None)) == DONE
    assert not logger.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize(
    ("text", "level"), [("FATAL", 50), ("ERROR", 40), ("WARN", 30), ("INFO", 20), ("DEBUG", 10), ("TRACE", 5)]
)
def test_logger_levels_have_kafkas_names(harness: Harness, logger: logging.Logger, text: str, level: int) -> None:
    alter(harness, BROKER_LOGGER, "1", (logger.name, SET, text))
    assert (logger.level, value(harness, BROKER_LOGGER, "1", logger.name)) == (level, (text, OF_LOGGER))
    found = entry(harness, BROKER_LOGGER, "1", logger.name, include_synonyms=True, include_documentation=True)
    assert (found.config_type, found.synonyms, found.documentation, found.read_only) == (0, [], None, False)


def test_logger_levels_are_not_recorded_and_validate_only_changes_none(
    harness: Harness, logger: logging.Logger
) -> None:
    end = harness.cluster.metadata_log.storage.log_end_offset
    assert alter(harness, BROKER_LOGGER, "1", (logger.name, SET, "ERROR"), validate_only=True) == DONE
    assert logger.level == logging.NOTSET
    assert alter(harness, BROKER_LOGGER, "1", (logger.name, SET, "ERROR")) == DONE
    assert harness.cluster.metadata_log.storage.log_end_offset == end


@for_each(
    ("name", "line", "code", "message"),
    [
        ("1", ("nope", SET, "INFO"), INVALID_CONFIG, "Logger nope does not exist!"),
        ("1", ("nope", DELETE, None), INVALID_CONFIG, "Logger nope does not exist!"),
        (
            "1",
            ("root", SET, "LOUD"),
            INVALID_CONFIG,
            "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are DEBUG, "
            "ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("1", ("root", DELETE, None), INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        (
            "1",
            ("root", APPEND, "INFO"),
            INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        ("", ("root", SET, "INFO"), INVALID_REQUEST, "Node id must be an integer, but it is: "),
        ("7", ("root", SET, "INFO"), INVALID_REQUEST, "Unexpected node id. Expected 1, but received 7"),
    ],
)
def test_an_invalid_logger_level_rejects_its_whole_resource(
    harness: Harness,
    logger: logging.Logger,
    name: str,
    line: tuple[str, int, str | None],
    code: ErrorCode,
    message: str,
) -> None:
    assert alter(harness, BROKER_LOGGER, name, (logger.name, SET, "FATAL"), line) == (code, message)
    assert logger.level == logging.NOTSET


def test_each_node_alters_its_own_loggers(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        assert describe(harness, BROKER_LOGGER, "2", node=2).error_code == ErrorCode.NONE
        assert describe(harness, BROKER_LOGGER, "1", node=2).error_code == INVALID_REQUEST
