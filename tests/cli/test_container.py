"""What `serve` says to a terminal, to a file, and to programs that wait for Kafka's lines, once clients can connect."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from minibroker.broker.configs.settings import Settings
from minibroker.cli.container import ListenerAnnouncement, iterate_local_addresses, make_log_lines_of_kafka_start
from minibroker.cli.serving import InvalidOptions

LINE = "minibroker listens on kafka:9092,localhost:19092"
CONTROLLED = "minibroker is controlled at http://127.0.0.1:8082"
SETTINGS = Settings(
    {
        "listeners": "IN://:9092,OUT://127.0.0.1:0,CONTROLLER://:9093",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "node.id": "3",
    }
)


def test_the_announced_address_is_followed_by_kafkas_log_lines_of_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    announce = ListenerAnnouncement(SETTINGS, True, None)
    announce(LINE, {"control": CONTROLLED})
    first, *others, last = capsys.readouterr().out.splitlines()
    assert (first, last) == (LINE, CONTROLLED)
    assert any("[KafkaServer id=3] started (kafka.server.KafkaServer)" in other for other in others)


def test_the_imitated_log_line_of_a_start_has_kafkas_form() -> None:
    line = make_log_lines_of_kafka_start(1, datetime(2026, 1, 2, 3, 4, 5, 6_000))[-1]
    assert line == (
        "[2026-01-02 03:04:05,006] INFO [KafkaRaftServer nodeId=1] Kafka Server started (kafka.server.KafkaRaftServer)"
    )


def test_the_ready_file_is_written_once_clients_can_connect(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.write_text("of another start\n")
    announce = ListenerAnnouncement(SETTINGS, False, str(file))
    assert not file.exists()
    announce(LINE, {"registry": "minibroker has a schema registry at http://127.0.0.1:8081", "control": CONTROLLED})
    assert file.read_text().splitlines() == [
        "127.0.0.1:9092",
        "127.0.0.1:19092",
        "registry http://127.0.0.1:8081",
        "control http://127.0.0.1:8082",
    ]
    assert list(tmp_path.iterdir()) == [file]


def test_ipv6_addresses_of_listeners_are_in_brackets() -> None:
    settings = Settings({"listeners": "PLAINTEXT://[::1]:9092"})
    assert list(iterate_local_addresses(settings, "minibroker listens on [::1]:9092")) == ["[::1]:9092"]


def test_a_ready_file_in_a_missing_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="there is no directory"):
        ListenerAnnouncement(SETTINGS, False, str(tmp_path / "none" / "ready"))
