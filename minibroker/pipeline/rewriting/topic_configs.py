"""Says which configs of topics name a format or codec that their rewritten records no longer have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from minibroker.pipeline.directory.cluster_metadata import Configs
from minibroker.pipeline.rewriting.rewrite_settings import RewriteSettings
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.compression import Compression

FORMAT, CODEC = "message.format.version", "compression.type"
VERSION = "3.0"  # which stands for all with format 2


class ConfigChange(NamedTuple):
    """A config of a topic that should get another value."""

    topic: str
    name: str
    value: str


def list_config_changes(configs: Configs, topics: Iterable[str], settings: RewriteSettings) -> list[ConfigChange]:
    """Return the configs that the rewritten topics need, as later appends follow them.

    A codec is named only if one was set before: by default producers choose.
    """
    found: list[ConfigChange] = []
    for topic in topics:
        known = configs.get(topic, {})
        if parse_message_format(known.get(FORMAT, VERSION)) < MAGIC:
            found.append(ConfigChange(topic, FORMAT, VERSION))
        if settings.codec is not None and known.get(CODEC, "producer") != "producer":
            wanted = "uncompressed" if settings.codec == Compression.NONE else settings.codec.name.lower()
            found += [ConfigChange(topic, CODEC, wanted)] if known[CODEC] != wanted else []
    return found


def parse_message_format(version: str) -> int:
    """Return the message format of a `message.format.version`."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return MAGIC if parts >= [0, 11] else 1 if parts >= [0, 10] else 0
