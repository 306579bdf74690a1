"""`minibroker explain`: bytes in any notation, explained as text, JSON and HTML."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from minibroker.protocol.messages.groups import HeartbeatRequest
from minibroker.protocol.messages.metadata import MetadataResponse
from minibroker.protocol.messages.security import SaslAuthenticateRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.cli.conftest import Run
from tests.protocol.explaining.explained import produce, request

API_VERSIONS = "0000000a00120000000000050000"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def test_a_hex_request_has_a_line_for_each_field(run: Run) -> None:
    result = run("explain", API_VERSIONS)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["0000", "request", "frame", "(ApiVersions", "version", "0)"]
    assert lines[1].split() == ["0000", "00", "00", "00", "0a", "size", "int32", "10"]
    assert "0004  00 12" in result.stdout
    assert "int16  18  (ApiVersions)" in result.stdout


def test_each_field_is_described_on_request(run: Run) -> None:
    assert "decides" not in run("explain", API_VERSIONS).stdout
    lines = run("explain", "--about", API_VERSIONS).stdout.splitlines()
    (key,) = (place for place, line in enumerate(lines) if "request_api_key" in line)
    assert lines[key + 1].strip() == "Which API is meant; it decides what the rest of the bytes are."
    assert lines[-2].endswith("null if it has no name. Versions 1+.")


@pytest.mark.parametrize("notation", ["hex", "base64", "binary"])
def test_files_in_hex_base64_or_binary_are_recognized(run: Run, tmp_path: Path, notation: str) -> None:
    data = request(HeartbeatRequest(group_id="readers"), 4)
    written = {"hex": data.hex(" ").encode(), "base64": base64.b64encode(data), "binary": data}[notation]
    (tmp_path / "frame").write_bytes(written)
    guessed = run("explain", str(tmp_path / "frame"))
    told = run("explain", "--format", notation, str(tmp_path / "frame"))
    assert guessed.exit_code == told.exit_code == 0
    assert guessed.stdout == told.stdout
    assert '"readers"' in told.stdout


def test_json_output_of_explain_contains_the_tree_of_fields(run: Run) -> None:
    (frame,) = map(json.loads, run("explain", "--json", API_VERSIONS).stdout.splitlines())
    assert (frame["name"], frame["meaning"], frame["start"], frame["end"]) == (
        "request",
        "ApiVersions version 0",
        0,
        14,
    )
    assert frame["parts"][0] == {"name": "size", "type": "int32", "start": 0, "end": 4, "value": 10}


def test_a_response_is_decoded_by_the_given_api_and_version(run: Run, tmp_path: Path) -> None:
    body = (9).to_bytes(4, "big") + MetadataResponse(controller_id=3).encode(1)
    path = tmp_path / "answer.bin"
    path.write_bytes(len(body).to_bytes(4, "big") + body)
    result = run("explain", "--api", "metadata", "--version", "1", str(path))
    assert result.exit_code == 0
    assert "response" in result.stdout
    assert "controller_id" in result.stdout


def test_log_files_are_recognized_by_their_names(run: Run, tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch([Record(value=b"hello")]))
    result = run("explain", str(segment))
    assert result.exit_code == 0
    assert result.stdout.startswith("0000")
    assert '"hello"' in result.stdout


def test_a_checkpoint_of_only_digits_is_not_read_as_hex(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    assert "(epoch 0, start_offset 0)" in run("explain", str(path)).stdout


def test_truncated_input_ends_with_status_1_and_the_reason(run: Run) -> None:
    result = run("explain", API_VERSIONS[:26])
    assert result.exit_code == 1
    assert "! 2 bytes are needed, and 1 are left" in result.stdout


@for_each(
    ("arguments", "line"),
    [
        (["no such"], "minibroker: 'no such' is no file, and neither hex nor base64\n"),
        (["abc"], "minibroker: there is an odd number of hex digits: 3\n"),
        (
            ["ffffffff"],
            "minibroker: these are neither a request nor records; --as says what they are, and --api what a response"
            " answers\n",
        ),
        (["--as", "response", "00"], "minibroker: --api is needed, such as --api Metadata\n"),
        (["--api", "Nothing", "00"], "minibroker: there is no API Nothing\n"),
        (["--api", "Metadata", "--version", "99", "00"], "minibroker: Metadata has no version 99\n"),
        (["--as", "file", "00"], "minibroker: the name is not that of a file of a log\n"),
    ],
)
def test_invalid_arguments_of_explain_are_reported_in_one_line_with_status_2(
    run: Run, arguments: list[str], line: str
) -> None:
    result = run("explain", *arguments)
    assert (result.exit_code, result.stderr) == (2, line)


def test_a_too_large_file_is_rejected_with_an_alternative(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "large.pcap"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "minibroker dump shows large files of a log, editcap -c splits captures" in run("explain", str(path)).stderr


def test_the_diff_lists_a_frame_that_only_one_side_has(run: Run) -> None:
    lines = run("explain", API_VERSIONS * 2, "--diff", API_VERSIONS).stdout.splitlines()
    assert lines[0] == "- request 2: frame ApiVersions version 0"
    assert all(line.startswith("- request 2") for line in lines)


def test_the_diff_of_two_frames_lists_the_fields_that_differ(run: Run) -> None:
    first, second = (request(HeartbeatRequest(group_id="g", member_id=member), 4).hex() for member in ("a", "b"))
    result = run("explain", first, "--diff", second)
    assert result.stdout.splitlines() == [
        '- request.body.member_id: compact string "a"',
        '+ request.body.member_id: compact string "b"',
    ]


class Texts(HTMLParser):
    """The texts and tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_html_page_loads_nothing_and_escapes_its_content(run: Run) -> None:
    result = run("explain", "--html", request(HeartbeatRequest(group_id=HOSTILE, member_id=HOSTILE), 4).hex())
    assert result.exit_code == 0
    page = Texts(result.stdout)
    assert page.tags.count("script") == 1
    assert not {name for name, _ in page.attributes} & {"src", "href"}
    assert "\x1b" not in result.stdout
    assert any("<script>alert(1)</script>" in text for text in page.texts)


@pytest.mark.parametrize("form", [(), ("--html",), ("--json",)])
def test_passwords_are_hidden_in_text_and_hex(run: Run, form: tuple[str, ...]) -> None:
    said = request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0open sesame"), 2).hex()
    shown = run("explain", *form, said).stdout
    assert "alice" in shown
    assert "sesame" not in shown
    assert b"sesame".hex() not in shown.replace(" ", "")
    assert b"sesame".hex(" ") not in " ".join(Texts(shown).texts)


def test_the_html_page_shows_each_byte_beside_its_field(run: Run) -> None:
    data = request(produce(compression=1), 9)
    page = Texts(run("explain", "--html", data.hex()).stdout)
    shown = [text for text in page.texts if len(text) == 2 and all(each in "0123456789abcdef" for each in text)]
    assert bytes.fromhex("".join(shown[: len(data)])) == data
    assert len(shown) > len(data)  # the decompressed records, too


def test_a_request_is_compared_with_itself_in_another_version(run: Run) -> None:
    data = request(HeartbeatRequest(group_id="g", group_instance_id="i"), 4).hex()
    lines = run("explain", "--diff-version", "0", data).stdout.splitlines()
    assert "- request.header.request_api_version: int16 4" in lines
    assert "+ request.header.request_api_version: int16 0" in lines
    assert '- request.body.group_instance_id: compact string "i"' in lines
    assert not any(line.startswith("+ request.body.group_instance_id") for line in lines)


def test_a_response_and_a_message_are_compared_with_themselves_in_another_version(run: Run) -> None:
    body = (9).to_bytes(4, "big") + MetadataResponse(controller_id=3, cluster_id="c").encode(2)
    frame = len(body).to_bytes(4, "big") + body
    lines = run("explain", "--api", "Metadata", "--version", "2", "--diff-version", "1", frame.hex()).stdout
    assert lines == (
        "- response: frame Metadata version 2\n+ response: frame Metadata version 1\n"
        "- response.size: int32 19\n+ response.size: int32 16\n"
        '- response.body.cluster_id: string "c"\n'
    )
    message = HeartbeatRequest(group_id="g").encode(0).hex()
    options = ("--as", "message", "--api", "Heartbeat", "--version", "0", "--diff-version", "3")
    assert "+ HeartbeatRequest.group_instance_id: string null" in run("explain", *options, message).stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--diff-version", "99", API_VERSIONS], "ApiVersions has no version 99"),
        (["--diff-version", "1", API_VERSIONS[:26]], "--diff-version needs one whole request"),
        (["--diff-version", "1", "--as", "records", API_VERSIONS], "--diff-version is for a request, a response or a"),
        (["--as", "OffsetComitValue", "00"], "there is no kind OffsetComitValue; did you mean OffsetCommitValue?"),
    ],
)
def test_invalid_arguments_of_the_options_diff_version_and_as_are_reported(
    run: Run, arguments: list[str], line: str
) -> None:
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert line in result.stderr


@for_each(
    ("kind", "data", "shown"),
    [
        ("assignment", "0000 00000001 0006 6f7264657273 00000001 00000003 ffffffff", '"orders"'),
        ("subscription", "0000 00000001 0006 6f7264657273 ffffffff", '"orders"'),
        ("sasl", b"n,,n=alice,r=nonce".hex(), '"alice"'),
        ("offsetcommitkey", "0001 0001 67 0006 6f7264657273 00000002", '"orders"'),
        ("OffsetCommitValue", "0003 000000000000000a ffffffff 0000 0000018bcfe56800", "commit_timestamp"),
        ("TopicRecord", "01 02 00 07 6f7264657273 00000000000000000000000000000007 00", '"orders"'),
    ],
)
def test_a_key_a_value_or_a_nested_message_is_explained_as_the_given_kind(
    run: Run, kind: str, data: str, shown: str
) -> None:
    result = run("explain", "--as", kind, data)
    assert result.exit_code == 0, result.stdout
    assert shown in result.stdout


def test_records_are_explained_as_those_of_the_given_topic_or_that_of_their_directory(run: Run, tmp_path: Path) -> None:
    key, value = bytes.fromhex("0001 0001 67 0001 74 00000002"), None
    data = bytes(build_batch([Record(key=key, value=value)]))
    told = run("explain", "--as", "records", "--topic", "__consumer_offsets", data.hex())
    directory = tmp_path / "__consumer_offsets-3"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(data)
    found = run("explain", str(directory / "00000000000000000000.log"))
    for result in (told, found):
        assert "OffsetCommitKey" in result.stdout
        assert "a tombstone, which deletes the key" in result.stdout
