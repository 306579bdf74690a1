"""Python while it is written."""

from __future__ import annotations

from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.source import Source, free_name, snake_case


def test_blocks_indent_and_lines_know_their_field() -> None:
    source = Source({})
    with source.block("if a:"), source.about("topics"):
        source.add("b = 1")
        with source.about("name"):
            source.add("c = 2")
            source.add("d, e = 3, 4", ("topics.d", 2), ("topics.e", 4))
    source.add("f = 5")
    assert source.lines == ["if a:", "    b = 1", "    c = 2", "    d, e = 3, 4", "f = 5"]
    assert source.places == [
        (("", 0),),
        (("topics", 0),),
        (("topics.name", 0),),
        (("topics.d", 2), ("topics.e", 4)),
        (("", 0),),
    ]


def test_a_name_means_one_object() -> None:
    source = Source({"taken": 1})
    first, second = object(), object()
    assert source.named("Topic", first) == "Topic"
    assert source.named("Topic", first) == "Topic"
    assert source.named("Topic", second) == "Topic_"
    assert (source.names["Topic"], source.names["Topic_"]) == (first, second)


def test_constants_are_expressions() -> None:
    source = Source({})
    assert [source.constant(value) for value in (None, True, -1, "a'b", b"\0")] == [
        "None",
        "True",
        "-1",
        '"a\'b"',
        r"b'\x00'",
    ]
    assert source.constant(bytes(16)) == "ZERO_UUID"
    assert source.names["ZERO_UUID"] == ZERO_UUID


def test_codecs_are_made_once_and_have_readable_names() -> None:
    source = Source({})
    assert source.codec("unpack_from", "hi?") == "unpack_hit"
    assert source.names["unpack_hit"](b"\0\1\0\0\0\2\1", 0) == (1, 2, True)
    assert source.few("pack", "i") == "pack_few_i"
    assert source.names["pack_few_i"][2](1, 2) == b"\0\0\0\1\0\0\0\2"


def test_variables_do_not_hide_each_other() -> None:
    assert free_name("topics", ()) == "topics"
    assert free_name("topics", ("topics", "topics_")) == "topics__"
    assert free_name("data", ()) == "data_"
    assert free_name("from", ()) == "from_"


def test_snake_case() -> None:
    assert snake_case("TopicProduceData") == "topic_produce_data"
