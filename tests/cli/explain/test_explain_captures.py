"""`minibroker explain` of captures: packets, what tshark has followed, and two files with both directions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from minibroker.protocol.apis import ApiKey
from minibroker.proxy.flows import encode_exchange, encode_file_header
from minibroker.testing.seen.exchange import Exchange
from tests.captures.capturing import Wire, pcap, pcapng
from tests.captures.frames import HELLO, WELCOME, heartbeat, heartbeat_answer
from tests.cli.conftest import Run

ASKED, ANSWERED = HELLO + heartbeat(1), WELCOME + heartbeat_answer(1, 27)


def session() -> Wire:
    return Wire().open().asks(HELLO).answers(WELCOME).asks(heartbeat(1)).answers(heartbeat_answer(1, 27)).close()


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "session.pcap"
    path.write_bytes(pcap(session().packets))
    return str(path)


def test_each_captured_request_is_explained_with_its_response(run: Run, capture: str) -> None:
    result = run("explain", capture)
    assert (result.exit_code, result.stderr) == (0, "")
    headings = [line for line in result.stdout.splitlines() if line.startswith("#")]
    assert headings == [
        "#1 request, 22:13:20.003000Z, 127.0.0.1:50000 > 127.0.0.1:9092",
        "#1 answer, 22:13:20.004000Z, 127.0.0.1:9092 > 127.0.0.1:50000, after 1.0 ms",
        "#2 request, 22:13:20.005000Z, 127.0.0.1:50000 > 127.0.0.1:9092",
        "#2 answer, 22:13:20.006000Z, 127.0.0.1:9092 > 127.0.0.1:50000, after 1.0 ms",
    ]
    assert "27  (REBALANCE_IN_PROGRESS)" in result.stdout


def test_the_list_option_prints_a_line_for_each_request(run: Run, capture: str) -> None:
    sizes = [f"{len(asked)} > {len(said)} bytes" for asked, said in ((HELLO, WELCOME), (heartbeat(1), ANSWERED))]
    sizes[1] = f"{len(heartbeat(1))} > {len(heartbeat_answer(1))} bytes"
    assert run("explain", "--list", capture).stdout.splitlines() == [
        f"#1  22:13:20.003000Z  127.0.0.1:50000  ApiVersions 3  {sizes[0]}  1.0 ms",
        f"#2  22:13:20.005000Z  127.0.0.1:50000  Heartbeat 4  {sizes[1]}  1.0 ms  REBALANCE_IN_PROGRESS",
    ]


def test_one_request_is_selected_by_its_number(run: Run, capture: str) -> None:
    frames = list(map(json.loads, run("explain", "--only", "2", "--json", capture).stdout.splitlines()))
    assert [frame["meaning"] for frame in frames] == ["Heartbeat version 4"] * 2
    assert frames[0]["heading"].startswith("#2 request, ")
    assert run("explain", "--only", "3", capture).stderr == "minibroker: there is no request 3, the last one is 2\n"


def test_the_html_page_has_the_captured_frames(run: Run, capture: str) -> None:
    page = run("explain", "--html", capture).stdout
    assert (page.count('<div class="frame">'), page.count("<main>")) == (4, 1)
    assert "#2 request, 22:13:20.005000Z, 127.0.0.1:50000 &gt; 127.0.0.1:9092: Heartbeat version 4" in page


def test_missing_and_foreign_packets_of_a_capture_are_reported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "session.pcapng"
    path.write_bytes(pcapng([*session().packets[5:], (0.0, b"\0" * 60)]))
    result = run("explain", "--list", str(path))
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr.splitlines() == [
        "minibroker: packets that are no TCP: 1",
        "minibroker: 127.0.0.1:50000 > 127.0.0.1:9092: the capture does not have the first bytes of the client",
        "minibroker: 127.0.0.1:50000 > 127.0.0.1:9092: the capture does not have the first bytes of the server",
    ]


def test_tls_and_non_kafka_connections_of_a_capture_are_reported(run: Run, tmp_path: Path) -> None:
    tls = Wire(("127.0.0.1", 50_001)).open().asks(bytes.fromhex("16030100a5") + bytes(165))
    web = Wire(("127.0.0.1", 50_002)).open().asks(b"GET / HTTP/1.1\r\n\r\n")
    path = tmp_path / "session.pcap"
    path.write_bytes(pcap([*tls.packets, *web.packets]))
    result = run("explain", str(path))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "minibroker: 127.0.0.1:50001 > 127.0.0.1:9092: TLS, docs/explain.md says how tshark reads them with the keys "
        "of the client",
        "minibroker: connections that are not with Kafka: 1",
        "minibroker: there are no requests of Kafka",
    ]


def test_streams_followed_by_tshark_are_explained(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "followed.txt"
    lines = ["", "=" * 67, "Follow: tls,raw", "Filter: tcp.stream eq 0", "Node 0: 10.0.0.1:50000", "Node 1: [::1]:9093"]
    lines += [HELLO.hex(), "\t" + WELCOME.hex(), heartbeat(1).hex(), "\t" + heartbeat_answer(1).hex(), "=" * 67, ""]
    path.write_text("\n".join(lines))
    result = run("explain", "--list", str(path))
    assert result.stderr == ""
    assert [line.split("  ")[:3] for line in result.stdout.splitlines()] == [
        ["#1", "10.0.0.1:50000", "ApiVersions 3"],
        ["#2", "10.0.0.1:50000", "Heartbeat 4"],
    ]
    path.write_text(path.read_text().replace("10.0.0.1", "\x1b[31m"))
    assert "\x1b" not in run("explain", str(path)).stdout
    path.write_text(path.read_text().replace("\t", "\tno hex"))
    assert "-z follow needs the mode raw" in run("explain", str(path)).stderr


def test_requests_and_responses_of_two_files_are_paired(run: Run, tmp_path: Path) -> None:
    (tmp_path / "asked").write_bytes(ASKED)
    (tmp_path / "answered").write_text(ANSWERED.hex())
    result = run("explain", str(tmp_path / "asked"), "--answers", str(tmp_path / "answered"), "--list")
    assert result.stdout.splitlines()[1].split("  ")[-1] == "REBALANCE_IN_PROGRESS"


def test_a_missing_optional_library_is_reported_with_the_command_to_install_it(
    run: Run, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dpkt", None)
    assert "python3 -m pip install dpkt" in run("explain", capture).stderr


def test_frames_saved_by_a_proxy_are_read_as_a_capture(run: Run, tmp_path: Path) -> None:
    saved = [Exchange(number, ApiKey.HEARTBEAT, 4, number, heartbeat(number)[4:]) for number in (7, 3)]
    for each in saved:
        each.answer_bytes, each.outcome = heartbeat_answer(each.number, 27)[4:], "answered"
        each.connection, each.started_ms, each.duration_ms = "127.0.0.1:50000", 1_700_000_000_005, 1.0
    path = tmp_path / "session.flows"
    path.write_bytes(encode_file_header("k:9092") + b"".join(encode_exchange(each, "[::1]:9092") for each in saved))
    assert run("explain", "--list", str(path)).stdout.splitlines() == [
        f"#{number}  22:13:20.005000Z  127.0.0.1:50000  Heartbeat 4  28 > 16 bytes  1.0 ms  REBALANCE_IN_PROGRESS"
        for number in (3, 7)
    ]
    shown = run("explain", "--only", "7", str(path)).stdout
    assert shown.startswith("#7 request, 22:13:20.005000Z, 127.0.0.1:50000 > [::1]:9092\n")
    assert run("explain", "--only", "4", str(path)).stderr == "minibroker: there is no request 4, the last one is 7\n"
    assert "--port is for packets" in run("explain", "--port", "9092", str(path)).stderr
    path.write_bytes(encode_file_header("k:9092"))
    assert "there are no requests" in run("explain", str(path)).stderr
    path.write_bytes(b'{"number": 1}')
    assert "line 1: it has no request_hex" in run("explain", str(path)).stderr
