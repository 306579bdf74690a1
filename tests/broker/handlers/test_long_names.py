"""Names as long as the protocol allows, in every field of every request: each is answered, or its own client cut off.

What is answered to them is each API's test's business.
"""

from __future__ import annotations

import contextlib
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.fields import FieldType, list_declared_fields
from minibroker.protocol.primitives import MAX_STRING_BYTES, ZERO_UUID
from tests.broker.harness import Harness

LONG_NAMES = (MAX_STRING_BYTES * "x", MAX_STRING_BYTES // 3 * "大", MAX_STRING_BYTES // 2 * "\n\x1b")
OF_FIXED_SIZE: dict[str, Any] = {"?": True, "d": 1.0, "16s": ZERO_UUID, "bytes": b"", "records": memoryview(b"")}


def filled(struct: type, name: str, count: int, number: int) -> Any:
    """A struct with `name` in all texts, `count` items in all arrays, and `number` in all numbers."""

    def value(kind: FieldType) -> Any:
        if kind.item is not None:
            return [value(kind.item) for _ in range(count)]
        if kind.struct is not None:
            return filled(kind.struct, name, count, number)
        return name if kind.code == "string" else OF_FIXED_SIZE.get(kind.code, number)

    return struct(**{field.name: value(field.kind) for field in list_declared_fields(struct)})


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: ApiKey(key).name)
def test_requests_with_names_of_any_length_are_answered(tmp_path: Path, key: int) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        harness.coordinator("g")
        served = SERVED[key].versions
        for version, name, count in product({served[0], served[-2:][0], served[-1]}, LONG_NAMES, (1, 2)):
            for number in (0, 2, 4, 16):
                request = filled(get_request_class(ApiKey(key)), name, count, number)
                with contextlib.suppress(UnanswerableRequest):  # such as a Produce with acks=0
                    harness.request(request, version, client_id=name)
