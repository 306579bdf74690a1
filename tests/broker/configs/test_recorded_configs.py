"""Configs in the metadata log that this broker cannot use are ignored, each with a warning."""

from __future__ import annotations

import logging

import pytest

from minibroker.broker.configs.recorded_configs import drop_unusable_configs
from minibroker.protocol.messages.metadata_records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)


def test_unknown_and_invalid_recorded_configs_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    configs = {
        (TOPIC_RESOURCE, "t"): {"retention.ms": "5", "of.the.future": "1", "segment.ms": "x"},
        (BROKER_RESOURCE, ""): {"num.io.threads": "8", "of.the.future": "1", "log.retention.ms": "x"},
        (BROKER_RESOURCE, "1"): {},
        (CLIENT_METRICS_RESOURCE, "m"): {"interval.ms": "1"},
        (GROUP_RESOURCE, "g"): {"of.the.future": "1", "consumer.session.timeout.ms": "46000"},
        (99, "x"): {"a": "b"},
    }
    with caplog.at_level(logging.WARNING):
        drop_unusable_configs(configs)
    assert configs == {
        (TOPIC_RESOURCE, "t"): {"retention.ms": "5"},
        (BROKER_RESOURCE, ""): {"num.io.threads": "8", "of.the.future": "1"},
        (BROKER_RESOURCE, "1"): {},
        (CLIENT_METRICS_RESOURCE, "m"): {"interval.ms": "1"},
        (GROUP_RESOURCE, "g"): {"consumer.session.timeout.ms": "46000"},
        (99, "x"): {"a": "b"},
    }
    assert [record.getMessage() for record in caplog.records] == [
        "the metadata sets of.the.future of topic t: ignored, as this broker does not know it",
        "the metadata sets segment.ms of topic t: ignored, "
        "Invalid value x for configuration segment.ms: Not a number of type LONG",
        "the metadata sets log.retention.ms of broker (all): ignored, "
        "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        "broker (all): num.io.threads is kept, but has no effect: one event loop serves all",
        "broker (all): of.the.future is kept, but has no effect: it is not known here",
        "the metadata sets of.the.future of group g: ignored, as this broker does not know it",
    ]
