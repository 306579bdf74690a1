"""Each kind that `verify` knows: three faults of it are planted, at different places, and all of them are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.verifying.findings import BY_CODE, KINDS
from tests.pipeline.verifying.planted import FAULTS
from tests.pipeline.verifying.support import judge

PLANTED = 3
# They have no positions: their findings differ in the offset, or in the partition.
OF_ONE_FILE = {
    *("leader-epoch-checkpoint", "leader-epoch-late", "txnindex-count", "partition-metadata", "partition-missing"),
    *("meta-properties", "partition-unknown"),
}
ELSEWHERE = {"vanished", "large"}  # tests/pipeline/verifying: test_live_directory.py, test_record_checks.py


def test_there_are_planted_faults_of_each_kind() -> None:
    assert FAULTS.keys() | ELSEWHERE == {kind.code for kind in KINDS}


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_three_planted_faults_are_all_found(kind: str, tmp_path: Path) -> None:
    expected = FAULTS[kind](tmp_path)
    findings = [each for each in judge(tmp_path) if each.kind == kind]
    assert len(expected) >= PLANTED or kind in OF_ONE_FILE
    assert expected <= {(Path(each.file).name, each.position) for each in findings}
    found = {(each.file, each.position, each.offset) for each in findings}
    assert len(found) >= (1 if kind == "meta-properties" else PLANTED)


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_finding_names_its_file_and_is_made_only_by_the_check_of_its_kind(kind: str, tmp_path: Path) -> None:
    FAULTS[kind](tmp_path)
    check = BY_CODE[kind].check
    findings = judge(tmp_path, checks=[check])
    assert {BY_CODE[each.kind].check for each in findings} == {check}
    assert all(each.detail and each.file and each.severity == BY_CODE[each.kind].severity for each in findings)
