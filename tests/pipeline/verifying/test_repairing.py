"""`minibroker repair --output`: a copy without what a start does not rebuild, in which `verify` finds no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.cli.main import main
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.verifying.repairing import plan_repair, repair_into
from minibroker.pipeline.verifying.verify_job import verify_plan
from minibroker.storage.directories.log_directory import LOCK
from minibroker.storage.files import Disk
from tests.cli.conftest import runner
from tests.pipeline.verifying.planted import FAULTS
from tests.pipeline.verifying.support import judge, places, remove_batches, written

KINDS = ("crc", "length", "magic", "record", "record-count", "offset-order", "segment-overlap", "gap")


def severe(path: Path) -> list[str]:
    return [each.kind for each in judge(path) if each.severity == "error"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_repaired_log_begins_after_a_damaged_closed_segment(kind: str, tmp_path: Path) -> None:
    FAULTS[kind](tmp_path / "data")
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    steps = plan_repair(str(tmp_path / "data"))
    assert [step.begin is not None and step.begin > 0 for step in steps] == [True]
    left = verify_plan(repair_into(str(tmp_path / "data"), str(tmp_path / "copy"), steps))
    assert [each for each in left if each.severity == "error"] == []
    assert len(list((tmp_path / "copy" / "orders-0").glob("*.log"))) > 0
    assert before == {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_repaired_log_begins_after_a_segment_that_is_missing_or_lost_its_end(tmp_path: Path, is_gone: bool) -> None:
    logs = sorted(written(tmp_path / "data").glob("*.log"))
    if is_gone:
        for path in logs[2].parent.glob(f"{logs[2].stem}.*"):
            path.unlink()
    else:
        logs[2].write_bytes(logs[2].read_bytes()[:-50])
    (step,) = plan_repair(str(tmp_path / "data"))
    assert step.begin == int(logs[3].stem)
    assert step.intact == tuple(int(each.stem) for each in logs[:2])
    assert str(step).endswith("; 2 intact segments are left out before it, the first at offset 0")
    repair_into(str(tmp_path / "data"), str(tmp_path / "copy"), [step])
    assert severe(tmp_path / "copy") == []


def test_a_repaired_log_begins_after_the_last_damage_behind_a_missing_segment(tmp_path: Path) -> None:
    logs = sorted(written(tmp_path / "data").glob("*.log"))
    logs[2].unlink()
    content = bytearray(logs[3].read_bytes())
    content[-1] ^= 1
    logs[3].write_bytes(content)
    (step,) = plan_repair(str(tmp_path / "data"))
    assert step.begin == int(logs[4].stem)
    assert step.intact == tuple(int(each.stem) for each in logs[:2])


def test_a_missing_batch_in_the_newest_segment_needs_no_repair(tmp_path: Path) -> None:
    found = places(written(tmp_path / "data"))
    newest = [each for each in found if each.file == found[-1].file]
    assert len(newest) > 2
    remove_batches(newest[1:2])
    assert plan_repair(str(tmp_path / "data")) == []


def test_repairing_a_symlinked_directory_leaves_its_target_unchanged(tmp_path: Path) -> None:
    FAULTS["crc"](tmp_path / "data")
    (tmp_path / "data" / "orders-0").rename(tmp_path / "elsewhere")
    (tmp_path / "data" / "orders-0").symlink_to(tmp_path / "elsewhere")
    before = {path: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()}
    repair_into(str(tmp_path / "data"), str(tmp_path / "copy"), plan_repair(str(tmp_path / "data")))
    assert {path: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()} == before
    assert severe(tmp_path / "copy") == []


def test_a_repaired_copy_inside_of_the_source_directory_is_rejected(tmp_path: Path) -> None:
    FAULTS["crc"](tmp_path / "data")
    with pytest.raises(OptionError, match="name a place outside of it"):
        repair_into(str(tmp_path / "data"), str(tmp_path / "data" / "orders-0" / "copy"), [])
    assert not (tmp_path / "data" / "orders-0" / "copy").exists()


def test_the_directory_of_a_running_broker_cannot_be_repaired(tmp_path: Path) -> None:
    FAULTS["crc"](tmp_path / "data")
    held = Disk().lock(str(tmp_path / "data" / LOCK))
    assert held is not None
    arguments = ["repair", str(tmp_path / "data"), "--output", str(tmp_path / "copy"), "--yes"]
    refused = runner().invoke(main, arguments)
    held.close()
    assert refused.exit_code == 1 and "is in use: stop the broker first" in refused.stderr
    assert not (tmp_path / "copy").exists() and runner().invoke(main, arguments).exit_code == 0


def test_a_partition_unknown_to_the_metadata_is_renamed_as_stray(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    FAULTS["partition-unknown"](tmp_path / "data")
    steps = plan_repair(str(tmp_path / "data"))
    assert steps and all(step.begin is None for step in steps)
    repair_into(str(tmp_path / "data"), str(tmp_path / "copy"), steps)
    assert "partition-unknown" not in [each.kind for each in judge(tmp_path / "copy")]
    assert list((tmp_path / "copy").glob("*-stray"))


def test_the_repair_command_prints_its_plan_and_writes_the_copy_only_with_yes(tmp_path: Path) -> None:
    FAULTS["crc"](tmp_path / "data")
    arguments = ["repair", str(tmp_path / "data"), "--output", str(tmp_path / "copy")]
    said = runner().invoke(main, arguments)
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (0, "nothing was written; add --yes to do this")
    assert said.stdout.startswith("orders-0: begins at offset ") and not (tmp_path / "copy").exists()
    done = runner().invoke(main, [*arguments, "--yes"])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        0,
        f"{tmp_path / 'copy'} is complete; verify finds 0 errors in it",
    )
    again = runner().invoke(main, ["repair", str(tmp_path / "copy"), "--output", str(tmp_path / "more"), "--yes"])
    assert (again.exit_code, again.stdout) == (0, "there is nothing to repair\n")
    refused = runner().invoke(main, [*arguments, "--yes"])
    assert refused.exit_code == 1 and "copy exists" in refused.stderr
