"""Errors of the client as people see them."""

from __future__ import annotations

import pytest

from minibroker.client.client_errors import ClientError, check_error_code
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.legible import MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no\n room\t left", "no room left"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("schön \u202etxt", r"schön \u202etxt"),
    ],
)
def test_a_brokers_error_message_is_one_line_without_control_characters(said: str, shown: str) -> None:
    with pytest.raises(ClientError) as failure:
        check_error_code(ErrorCode.KAFKA_STORAGE_ERROR, "writing", said)
    assert str(failure.value) == f"writing: KAFKA_STORAGE_ERROR ({shown})"


def test_a_brokers_long_error_message_is_shortened() -> None:
    with pytest.raises(ClientError) as failure:
        check_error_code(ErrorCode.KAFKA_STORAGE_ERROR, "writing", "x" * 1_000_000)
    assert len(str(failure.value)) == MESSAGE_CHARACTERS
    assert str(failure.value).startswith("writing: KAFKA_STORAGE_ERROR (x")
