"""The answer that says nothing but an error, which is what a handler that raises one gets."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.requests.routes import Route
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import get_response_class
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import UnregisterBrokerRequest
from minibroker.protocol.messages.groups import HeartbeatRequest
from tests.broker.harness import Harness
from tests.cases import for_each

ERROR = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "You may not.")
WHOLE = [key for key in SERVED if "error_code" in get_response_class(key).__fields__]


@for_each("key", WHOLE)
@for_each("error", [ERROR, KafkaError(ERROR.code)])
def test_an_error_response_can_be_encoded_in_every_version(key: Any, error: KafkaError) -> None:
    served = SERVED[key]
    told = set()
    for version in served.versions:
        answer = Route(served, version).make_refusal(error).encode(version)
        told.add(get_response_class(key).decode(answer, version).error_code)
    assert told <= {error.code, ErrorCode.NONE}  # the oldest versions of some have no place for it
    assert error.code in told


@for_each("key", [key for key in SERVED if key not in WHOLE])
def test_making_an_error_response_raises_if_the_response_has_no_field_for_the_error(key: Any) -> None:
    with pytest.raises(KafkaError):
        Route(SERVED[key], SERVED[key].versions[-1]).make_refusal(ERROR)


def test_an_error_raised_by_a_handler_immediately_or_after_steps_is_answered(harness: Harness) -> None:
    assert harness.request(HeartbeatRequest(group_id="none")).error_code == ErrorCode.NOT_COORDINATOR
    answer = harness.request(UnregisterBrokerRequest(broker_id=77))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
