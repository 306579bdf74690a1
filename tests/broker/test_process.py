"""What a start refuses, in one line: directories whose content is no use, found before anybody learns an address.

How the process starts and ends from the command line is tested with the command `serve`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.broker.configs.settings import Settings
from minibroker.broker.lifecycle import StartError
from minibroker.broker.process import serve_until_signal
from tests.broker.harness import Harness
from tests.storage.support import FailingDisk


def refusal(directory: Path, **settings: str) -> str:
    """Why a broker on the data in `directory` does not start."""
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data"), **texts}
    announced: list[str] = []
    with pytest.raises(StartError) as raised:
        serve_until_signal(Settings(static), nodes=1, announce=announced.append)
    assert announced == []
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory in which a topic "t" with a record was left by a clean stop."""
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        harness.produce("t", "v")
        harness.stop()
    return tmp_path


def snapshot(directory: Path) -> dict[str, bytes]:
    files = [path for path in (directory / "data").rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_corrupt_metadata_is_reported_with_its_position_and_left_unchanged(data: Path) -> None:
    log = data / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[-20] ^= 0xFF
    log.write_bytes(content)
    before = snapshot(data)
    for _ in range(2):
        message = refusal(data)
        assert f"{log.parent} cannot be used, offset " in message and "CORRUPT_MESSAGE: " in message
    after = snapshot(data)
    assert [name for name in before if after.get(name) != before[name]] == []


def test_a_partition_that_cannot_be_opened_is_reported(data: Path) -> None:
    (data / "data" / "t-0" / "partition.metadata").write_text("nonsense")
    assert "t-0" in refusal(data)


def test_a_directory_of_another_node_is_reported(data: Path) -> None:
    assert "node.id" in refusal(data, node_id="7")


def test_contradicting_settings_in_the_metadata_are_reported(data: Path) -> None:
    with Harness(data) as harness:
        harness.cluster.controller.change_config(4, "", {"log.cleaner.min.compaction.lag.ms": "10"})
        harness.stop()
    assert "compaction.lag.ms" in refusal(data, log_cleaner_max_compaction_lag_ms="5")


def test_a_disk_that_fails_writes_is_reported_as_the_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FailingDisk()
    disk.failing = {"write"}
    monkeypatch.setattr("minibroker.broker.process.Disk", lambda: disk)
    assert "quorum-state cannot be written" in refusal(data)
    monkeypatch.undo()
    with Harness(data) as harness:
        assert harness.produce("t", "v") == 1


def test_a_rejected_start_leaves_the_directory_usable(data: Path) -> None:
    refusal(data, node_id="7")
    with Harness(data) as harness:
        assert harness.produce("t", "v") == 1


@pytest.mark.parametrize(
    "late",
    [
        "minibroker.storage.compaction",
        "minibroker.broker.coordination.coordinator_logs",
        "minibroker.broker.handlers.",
        "minibroker.broker.groups.classic",
        "minibroker.broker.groups.commits",
        "minibroker.broker.groups.consumer",
        "minibroker.broker.groups.group_coordinator",
        "minibroker.broker.transactions.transaction_coordinator",
    ],
)
def test_a_start_does_not_wait_for_late_imports(late: str) -> None:
    program = (
        "import sys; from minibroker.broker import process;"
        f"print([name for name in sys.modules if name.startswith('{late}')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
