"""A request may name a thing a few times, and no more."""

import pytest

from minibroker.broker.requests.context import MOST_NAMINGS, NameRepetitions
from minibroker.protocol.errors import KafkaError


def test_naming_a_resource_more_than_ten_times_in_a_request_is_rejected():
    namings = NameRepetitions()
    for _ in range(MOST_NAMINGS):
        namings.count_or_refuse_name("a")
        namings.count_or_refuse_name(("b", 1))
    with pytest.raises(KafkaError, match="more than 10 times"):
        namings.count_or_refuse_name("a")
    namings.count_or_refuse_name("c")
