"""The exception that carries an error code: its message fits into every answer."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import MAX_STRING_BYTES


def test_a_message_with_a_long_name_is_shortened() -> None:
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {32_760 * '大'} is illegal, it is too long.")
    assert error.message is not None
    assert error.message.startswith("Topic 大大") and error.message.endswith("大大 is illegal, it is too long.")
    assert len(error.message) == 600 and len(error.message.encode()) < MAX_STRING_BYTES
    assert str(error) == f"INVALID_TOPIC_EXCEPTION: {error.message}"


def test_a_message_of_usual_length_is_not_shortened() -> None:
    assert KafkaError(ErrorCode.INVALID_CONFIG, 600 * "x").message == 600 * "x"


def test_an_error_without_a_message_shows_its_code() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG)
    assert (error.message, str(error)) == (None, "INVALID_CONFIG")
