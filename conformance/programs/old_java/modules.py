"""Writes Maven's modules of `pom.xml`, one for each version of Kafka's Java client that it lists, into `target`."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
NAMESPACES = {"": "http://maven.apache.org/POM/4.0.0"}
MODULE = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>minibroker.conformance</groupId>
    <artifactId>old_java</artifactId>
    <version>1</version>
    <relativePath>../../../pom.xml</relativePath>
  </parent>
  <artifactId>old_java-{version}</artifactId>
  <properties>
    <kafka.version>{version}</kafka.version>
    <folder>${{project.basedir}}/../../..</folder>
    <mdep.skip>false</mdep.skip>{more}
  </properties>
</project>
"""
# Before 0.9 the client had no consumer: there it is that of the server.
OF_SERVER = """
    <kafka.artifact>kafka_2.11</kafka.artifact>
    <reader>OldReader</reader>"""


def main() -> None:
    for module in ElementTree.parse(HERE / "pom.xml").getroot().iterfind("modules/module", NAMESPACES):
        folder = HERE / str(module.text)
        folder.mkdir(parents=True, exist_ok=True)
        more = OF_SERVER if folder.name.startswith("0.8.") else ""
        (folder / "pom.xml").write_text(MODULE.format(version=folder.name, more=more))


if __name__ == "__main__":
    main()
