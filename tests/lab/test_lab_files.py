"""Files of the lab: what one saves another opens, and what others made is bounded."""

from __future__ import annotations

import io
import json
import stat
import tracemalloc
import urllib.request
import zipfile
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.lab import lab_files
from minibroker.lab.lab_files import ABOUT, FRAMES, LabFileError, pack_lab_file, unpack_lab_file
from minibroker.protocol.apis import ApiKey
from minibroker.proxy.flows import FlowError, encode_exchange
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange
from tests.test_readme import environment

LOG = "orders-0/00000000000000000000.log"


def archive(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return path


def files_in(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


def test_a_saved_lab_file_is_opened_with_its_logs_and_frames(tmp_path: Path, logs: Path) -> None:
    with Broker(nodes=2) as broker:
        broker.journal.on()
        broker.fill({"orders": ["tea", "coffee"]})
        with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers})) as client:
            client.fetch_metadata(["orders"])
        frames = broker.journal.requests()
        saved = tmp_path / "state.zip"
        saved.write_bytes(pack_lab_file(broker.directory, frames, broker.nodes, broker.bootstrap_servers))
    opened = unpack_lab_file(saved, logs)
    assert opened.nodes == 2
    assert opened.has_logs
    assert [each.request_bytes for each in opened.frames] == [each.request_bytes for each in frames]
    with Broker(nodes=2, directory=logs) as again:
        assert [record.text for record in again.records("orders")] == ["tea", "coffee"]


@pytest.mark.parametrize("root", ["", "data/", "a/b/kafka-logs/"])
def test_a_log_directory_is_found_at_any_depth_of_the_archive(tmp_path: Path, logs: Path, root: str) -> None:
    entries = {"README.txt": b"no log", f"{root}meta.properties": b"version=1\n", f"{root}{LOG}": b""}
    opened = unpack_lab_file(archive(tmp_path / "kafka.zip", entries), logs)
    assert (opened.has_logs, opened.frames, opened.nodes) == (True, [], None)
    assert {"meta.properties", LOG} <= files_in(logs)


def test_unpacking_writes_nothing_outside_the_directory(tmp_path: Path, logs: Path) -> None:
    names = ("../outside", "/outside", "orders-0/../../outside", "a\\..\\outside", "orders-0/deep/outside", ".lock")
    unpack_lab_file(archive(tmp_path / "evil.zip", {LOG: b"", **dict.fromkeys(names, b"x")}), logs)
    assert files_in(tmp_path) - {"evil.zip"} <= {f"logs/{LOG}", "logs/outside"}
    assert not (tmp_path / "outside").exists()
    assert not (logs / ".lock").exists()


def test_an_archive_that_unpacks_to_too_many_bytes_is_rejected(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_files, "MOST_BYTES", 10 << 20)
    bomb = archive(tmp_path / "bomb.zip", {LOG: bytes(11 << 20)})
    assert bomb.stat().st_size < 100_000
    with pytest.raises(LabFileError, match="^bomb.zip: it has more than 10 MiB$"):
        unpack_lab_file(bomb, logs)
    monkeypatch.setattr(lab_files, "MOST_FILES", 2)
    with pytest.raises(LabFileError, match="^many.zip: it has 3 files, and 2 are opened at most$"):
        unpack_lab_file(archive(tmp_path / "many.zip", dict.fromkeys(("a", "b", LOG), b"")), logs)


def test_an_archive_with_too_many_names_is_rejected_before_they_are_read(tmp_path: Path, logs: Path) -> None:
    many = archive(tmp_path / "many.zip", {f"{number}{'x' * 60_000}": b"" for number in range(40)})
    with pytest.raises(LabFileError, match=r"^many.zip: the names of its files take 2.3 MiB, and 2 are read at most$"):
        unpack_lab_file(many, logs)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_methods_without_a_size_limit_are_rejected(tmp_path: Path, logs: Path, method: int) -> None:
    bomb = archive(tmp_path / "bomb.zip", {LOG: bytes(64 << 20)}, method)
    tracemalloc.start()
    try:
        with pytest.raises(LabFileError, match=f"^bomb.zip: {LOG} is packed by the method {method}, not by deflate$"):
            unpack_lab_file(bomb, logs)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_only_the_newest_frames_of_a_lab_file_are_kept(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_files, "MOST_FRAMES", 3)
    frames = [Exchange(at, ApiKey.METADATA, 9, at, b"\0\3\0\11\0\0\0" + bytes((at,))) for at in range(1, 6)]
    lines = b"".join(encode_exchange(each, "localhost:9092") for each in frames)
    opened = unpack_lab_file(archive(tmp_path / "many.zip", {FRAMES: lines}), logs)
    assert [each.correlation_id for each in opened.frames] == [3, 4, 5]


@pytest.mark.parametrize(("nodes", "found"), [(3, 3), (0, None), (10**9, None), ("3", None), (None, None)])
def test_the_number_of_nodes_in_a_lab_file_is_limited(
    tmp_path: Path, logs: Path, nodes: object, found: int | None
) -> None:
    entries = {ABOUT: json.dumps({"nodes": nodes}).encode(), LOG: b""}
    assert unpack_lab_file(archive(tmp_path / "nodes.zip", entries), logs).nodes == found


def test_a_packed_lab_file_can_be_opened(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "orders-0").mkdir()
    for name in (LOG, ".lock"):
        (logs / name).write_bytes(b"")
    with zipfile.ZipFile(io.BytesIO(pack_lab_file(logs, [], 1, "localhost:9092"))) as made:
        assert made.namelist() == [ABOUT, FRAMES, f"logs/{LOG}"]
        assert {each.date_time for each in made.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    monkeypatch.setattr(lab_files, "MOST_FILES", 2)
    with pytest.raises(LabFileError, match="^a lab's file has 2 files and 256 MiB at most$"):
        pack_lab_file(logs, [], 1, "localhost:9092")


def test_a_symbolic_link_is_unpacked_as_a_text_file(tmp_path: Path, logs: Path) -> None:
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as made:
        link = zipfile.ZipInfo(LOG)
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "/etc/passwd")
    unpack_lab_file(tmp_path / "link.zip", logs)
    assert not (logs / LOG).is_symlink()
    assert (logs / LOG).read_text() == "/etc/passwd"


def test_an_archive_without_logs_is_rejected_in_one_line(tmp_path: Path, logs: Path) -> None:
    with pytest.raises(LabFileError, match="^cat.zip: it has neither frames nor a log directory$"):
        unpack_lab_file(archive(tmp_path / "cat.zip", {"cat.jpg": b"meow"}), logs)
    with pytest.raises(FlowError, match="line 1"):
        unpack_lab_file(archive(tmp_path / "flows.zip", {FRAMES: b"no json\n"}), logs)


def test_any_damage_of_an_archive_is_reported_in_one_line(tmp_path: Path, logs: Path) -> None:
    made = io.BytesIO(archive(tmp_path / "whole.zip", {LOG: b"records" * 50, FRAMES: b"{}\n"}).read_bytes())
    content = made.getvalue()
    damaged = tmp_path / "damaged.zip"
    for at in range(len(content)):
        damaged.write_bytes(content[:at] + bytes((content[at] ^ 0x55,)) + content[at + 1 :])
        try:
            unpack_lab_file(damaged, logs)
        except (LabFileError, FlowError) as error:
            assert "\n" not in str(error)
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(LabFileError, match="^damaged.zip cannot be unpacked: "):
        unpack_lab_file(damaged, logs)


def test_the_explore_command_shows_logs_and_frames_of_a_lab_file(tmp_path: Path) -> None:
    frame = Exchange(1, ApiKey.METADATA, 9, 1, b"\0\3\0\11\0\0\0\1")
    logs = tmp_path / "data" / "orders-0"
    logs.mkdir(parents=True)
    (logs / "00000000000000000000.log").touch()
    saved = tmp_path / "state.zip"
    saved.write_bytes(pack_lab_file(tmp_path / "data", [frame], 1, "localhost:9092"))
    with Popen(["minibroker", "explore", str(saved)], stdout=PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" is explored at ")[1].strip()
        about, files = (
            json.load(urllib.request.urlopen(f"{url}api/{path}", timeout=30)) for path in ("about", "files")
        )
        assert (about["views"], about["path"]) == (["frames", "files"], str(saved))
        assert [each["folder"] for each in files["files"]] == ["orders-0"]
        process.terminate()
        assert process.wait(30) == 0


def test_the_explore_command_rejects_other_archives(tmp_path: Path) -> None:
    saved = archive(tmp_path / "cat.zip", {"cat.jpg": b"meow"})
    done = run(["minibroker", "explore", str(saved)], capture_output=True, text=True, env=environment())
    assert (done.returncode, "cat.zip: it has neither frames nor a log directory" in done.stderr) == (2, True)
