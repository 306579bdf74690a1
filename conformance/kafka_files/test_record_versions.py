"""The versions in which metadata records are written are those of Apache Kafka's MetadataVersion, at every level.

Levels that only a newer Kafka knows are left out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from conformance.builds import apache_kafka
from minibroker.broker.metadata.features import INITIAL, METADATA_VERSION, SUPPORTED
from minibroker.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from minibroker.protocol.records.metadata_values import choose_record_version

SCRIPT = """\
import org.apache.kafka.server.common.MetadataVersion;
System.out.println("latest " + MetadataVersion.latestProduction().featureLevel());
for (MetadataVersion version : MetadataVersion.values()) {
    System.out.println("level " + version.featureLevel() + " " + version.registerBrokerRecordVersion()
        + " " + version.partitionRecordVersion() + " " + version.partitionChangeRecordVersion());
}
/exit
"""


def test_metadata_levels_and_record_versions_equal_kafkas(tmp_path: Path) -> None:
    script = tmp_path / "versions.jsh"
    script.write_text(SCRIPT)
    command = ["jshell", "-s", "--class-path", f"{apache_kafka()}/*", str(script)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert f"latest {INITIAL[METADATA_VERSION]}" in lines
    levels = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("level ")]
    newest = max(level for level, *_ in levels)
    shared = [level for level in SUPPORTED[METADATA_VERSION] if level <= newest]
    known = [level for level in levels if level[0] in SUPPORTED[METADATA_VERSION]]
    assert [level for level, *_ in known] == shared
    assert known == [
        (
            level,
            choose_record_version(RegisterBrokerRecord, level),
            choose_record_version(PartitionRecord, level),
            choose_record_version(PartitionChangeRecord, level),
        )
        for level in shared
    ]
