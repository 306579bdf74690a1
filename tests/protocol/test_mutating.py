"""The spoilt requests themselves: right without a mutation, the same for the same seed, and seldom right with one."""

from __future__ import annotations

from random import Random

from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import get_request_class
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.primitives import MalformedMessage
from tests.cases import for_each
from tests.protocol.mutating import Requests

ROUTES = [(int(key), version) for key, row in SERVED.items() for version in row.versions]


def read(frame: bytes, key: int, version: int) -> int:
    """How many bytes of the frame a broker reads. Raises MalformedMessage."""
    _, position = RequestHeader.decode_from(frame, get_request_header_version(key, version), 4)
    return get_request_class(key).decode_from(frame, version, position)[1]


@for_each("key", SERVED)
def test_a_generated_request_without_mutations_is_valid(key: int) -> None:
    requests = Requests(Random(1))
    for version in SERVED[key].versions:
        for number in range(5):
            frame = requests.frame(key, version, number, mutations=0)
            assert read(frame, key, version) == len(frame)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_equal_seeds_create_equal_requests() -> None:
    first, second = Requests(Random(7)), Requests(Random(7))
    for number, (key, version) in enumerate(ROUTES):
        frame = first.frame(key, version, number, mutations=2)
        assert second.frame(key, version, number, mutations=2) == frame


def test_many_mutated_requests_are_malformed_and_many_are_not() -> None:
    requests = Requests(Random(3))
    refused = 0
    for number, (key, version) in enumerate(ROUTES):
        try:
            read(requests.frame(key, version, number, mutations=2), key, version)
        except MalformedMessage:
            refused += 1
    assert len(ROUTES) / 5 < refused < 4 * len(ROUTES) / 5
