"""Messages as plain values: every field of the version, and nothing that JSON does not know."""

from __future__ import annotations

import json
from typing import Any

from minibroker.protocol.declare import Message
from minibroker.protocol.describing import describe_fields
from minibroker.protocol.messages.group_records import GroupMetadataValue, OffsetCommitValue
from minibroker.protocol.messages.metadata_records import TopicRecord
from minibroker.protocol.values import convert_to_plain_dict
from tests.protocol.random_messages import in_all_versions, random_message


def test_a_message_as_a_dict_has_only_the_fields_of_the_version() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9, expire_timestamp=7)
    assert convert_to_plain_dict(value, 0) == {"offset": 5, "metadata": "m", "commit_timestamp": 9}
    assert convert_to_plain_dict(value, 1) == {
        "offset": 5,
        "metadata": "m",
        "commit_timestamp": 9,
        "expire_timestamp": 7,
    }
    assert convert_to_plain_dict(value, 3) == {"offset": 5, "leader_epoch": 2, "metadata": "m", "commit_timestamp": 9}


def test_uuids_are_formatted_as_in_kafka_and_bytes_as_base64() -> None:
    assert (
        convert_to_plain_dict(TopicRecord(name="t", topic_id=bytes(15) + b"\x01"), 0)["topic_id"]
        == "AAAAAAAAAAAAAAAAAAAAAQ"
    )
    member = GroupMetadataValue.MemberMetadata(member_id="m", subscription=b"\x00\xff")
    found = convert_to_plain_dict(GroupMetadataValue(members=[member], leader=None), 2)
    assert found["leader"] is None
    assert found["members"][0]["subscription"] == "AP8="


@in_all_versions
def test_every_message_is_plain_json_with_its_fields_in_wire_order(message: type[Message], version: int) -> None:
    values: dict[str, Any] = json.loads(json.dumps(convert_to_plain_dict(random_message(message, version, 1), version)))
    assert list(values) == [row.name for row in describe_fields(message, version) if row.depth == 0]
