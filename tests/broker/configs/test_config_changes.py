"""What SET, DELETE, APPEND and SUBTRACT make of texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.configs.config_changes import ChangeKind, ConfigChange, apply_config_changes, find_config_changes
from minibroker.broker.configs.settings_table import TOPIC_SETTINGS
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

SET, DELETE, APPEND, SUBTRACT = ChangeKind
LIST = "cleanup.policy"
texts = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.text(max_size=3))


def policy(current: str | None, kind: ChangeKind, value: str) -> str:
    """cleanup.policy after one change."""
    before = {} if current is None else {LIST: current}
    return apply_config_changes(TOPIC_SETTINGS, before, [ConfigChange(LIST, kind, value)])[LIST]


def test_a_set_operation_replaces_a_config_and_delete_removes_it() -> None:
    before = {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3"}
    changes = [
        ConfigChange("retention.ms", SET, "9"),
        ConfigChange("segment.ms", DELETE, ""),
        ConfigChange("flush.messages", DELETE, ""),
    ]
    assert apply_config_changes(TOPIC_SETTINGS, before, changes) == {"retention.ms": "9", "flush.ms": "3"}
    assert before == {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3"}


@for_each(
    ("current", "kind", "value", "after"),
    [
        ("delete", APPEND, "compact", "delete,compact"),
        ("delete", APPEND, "delete", "delete"),
        ("delete", APPEND, " compact , delete", "delete,compact"),
        (None, APPEND, "compact", "delete,compact"),  # a list that is not set begins with its default
        ("delete,compact", SUBTRACT, "delete", "compact"),
        ("delete", SUBTRACT, "compact", "delete"),
        ("delete", SUBTRACT, "delete", ""),
        (None, SUBTRACT, "delete", ""),
        ("", APPEND, "compact", "compact"),
        ("delete", APPEND, "", "delete"),
    ],
)
def test_append_and_subtract_add_and_remove_elements_of_a_list_config(
    current: str | None, kind: ChangeKind, value: str, after: str
) -> None:
    assert policy(current, kind, value) == after


@for_each("kind", [APPEND, SUBTRACT])
@for_each("name", ["retention.ms", "compression.type", "no.such.name"])
def test_config_append_and_subtract_require_a_list(kind: ChangeKind, name: str) -> None:
    with pytest.raises(KafkaError) as raised:
        apply_config_changes(TOPIC_SETTINGS, {}, [ConfigChange(name, kind, "5")])
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    assert raised.value.message == f"Can't {kind.name} to key {name} because its type is not LIST."


@given(texts, texts)
def test_applying_the_config_changes_turns_the_old_configs_into_the_new(
    before: dict[str, str], after: dict[str, str]
) -> None:
    changed = find_config_changes(before, after)
    result = {**before, **{name: text for name, text in changed.items() if text is not None}}
    for name, text in changed.items():
        if text is None:
            del result[name]
    assert result == after
    assert all(before.get(name) != text for name, text in changed.items())


def test_record_attributes_elide_is_set_to_false_instead_of_removed() -> None:
    elide = "record.attributes.elide"
    assert find_config_changes({elide: "true"}, {}) == {elide: "false"}
    assert find_config_changes({elide: "false"}, {elide: "true"}) == {elide: "true"}
    assert find_config_changes({}, {}) == {}
