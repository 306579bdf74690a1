"""Python that is being written: lines with the fields they are about, and the functions that are made of them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.source import (
    FunctionSource,
    choose_free_name,
    compile_function,
    convert_to_snake_case,
    make_malformed_error,
)


def test_generated_blocks_are_indented_and_lines_know_their_field() -> None:
    source = FunctionSource({})
    with source.add_block_with_head("if a:"), source.enter_field("topics"):
        source.add_line("b = 1")
        with source.enter_field("name"):
            source.add_line("c = 2")
            source.add_line("d, e = 3, 4", ("topics.d", 2), ("topics.e", 4))
    source.add_line("f = 5")
    assert source.lines == ["if a:", "    b = 1", "    c = 2", "    d, e = 3, 4", "f = 5"]
    assert source.places == [
        (("", 0),),
        (("topics", 0),),
        (("topics.name", 0),),
        (("topics.d", 2), ("topics.e", 4)),
        (("", 0),),
    ]


def test_different_objects_get_different_names_in_generated_code() -> None:
    source = FunctionSource({"taken": 1})
    first, second = object(), object()
    assert source.bind_object_to_name("Topic", first) == "Topic"
    assert source.bind_object_to_name("Topic", first) == "Topic"
    assert source.bind_object_to_name("Topic", second) == "Topic_"
    assert (source.names["Topic"], source.names["Topic_"]) == (first, second)


def test_default_values_become_python_expressions() -> None:
    source = FunctionSource({})
    assert [source.make_default_expression(value) for value in (None, True, -1, "a'b", b"\0")] == [
        "None",
        "True",
        "-1",
        '"a\'b"',
        r"b'\x00'",
    ]
    assert source.make_default_expression(bytes(16)) == "ZERO_UUID"
    assert source.names["ZERO_UUID"] == ZERO_UUID


def test_generated_codecs_are_cached_and_have_readable_names() -> None:
    source = FunctionSource({})
    assert source.bind_codec_method("unpack_from", "hi?") == "unpack_hit"
    assert source.names["unpack_hit"](b"\0\1\0\0\0\2\1", 0) == (1, 2, True)
    assert source.bind_codec_methods_for_few_items("pack", "i") == "pack_few_i"
    assert source.names["pack_few_i"][2](1, 2) == b"\0\0\0\1\0\0\0\2"


def test_generated_variables_do_not_shadow_each_other() -> None:
    assert choose_free_name("topics", ()) == "topics"
    assert choose_free_name("topics", ("topics", "topics_")) == "topics__"
    assert choose_free_name("data", ()) == "data_"
    assert choose_free_name("from", ()) == "from_"


def test_names_are_converted_to_snake_case() -> None:
    assert convert_to_snake_case("TopicProduceData") == "topic_produce_data"


def reader(*lines: tuple[str, str]) -> Any:
    """A compiled function of (field, line) pairs."""
    source = FunctionSource({})
    with source.add_block_with_head("def read(data, pos, end):"):
        for field, line in lines:
            with source.enter_field(field):
                source.add_line(line)
    return compile_function(source, "read Test v0")


def failure(function: Any, data: bytes) -> Exception:
    with pytest.raises((IndexError, ValueError)) as caught:
        function(data, 0, len(data))
    return caught.value


READ = reader(
    ("first", "a = data[0]"), ("second", "b = data[1]"), ("third", "c = int(str(data[2:], 'utf-8'))"), ("", "return c")
)


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        (b"", "first", "ends too early"),
        (b"1", "second", "ends too early"),
        (b"12x", "third", "invalid literal"),
        (b"12\xff", "third", "can't decode"),
    ],
)
def test_an_error_names_the_field_of_the_failing_line(data: bytes, field: str, reason: str) -> None:
    error = make_malformed_error("Test", 3, failure(READ, data))
    assert (error.message, error.version, error.field) == ("Test", 3, field)
    assert reason in str(error)


def test_an_error_inside_a_called_function_names_the_field_of_the_calling_line() -> None:
    def inner(data: bytes) -> int:
        return data[5]

    source = FunctionSource({"inner": inner})
    with source.add_block_with_head("def read(data, pos, end):"), source.enter_field("called"):
        source.add_line("return inner(data)")
    assert make_malformed_error("Test", 0, failure(compile_function(source, "read Inner v0"), b"")).field == "called"


def test_an_error_outside_of_generated_code_names_no_field() -> None:
    assert make_malformed_error("Test", 0, ValueError("odd")).field == ""


def test_tracebacks_show_the_generated_line() -> None:
    shown = "".join(traceback.format_exception(failure(READ, b"")))
    assert 'File "<read Test v0>", line 2, in read' in shown
    assert "a = data[0]" in shown
