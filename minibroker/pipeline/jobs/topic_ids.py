"""Identifies topics, so that a deleted topic or a topic of another cluster is not taken for one with the same name.

The identity is the topic's id. Without ids (Kafka before 2.8), it is the directory's path or the cluster's id.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.directory.finding import find_logs, paths_in
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import ReadOptions
from minibroker.storage.checkpoints.checkpoint_texts import (
    PARTITION_METADATA,
    MalformedCheckpoint,
    topic_id_from_text,
)

NO_ID = bytes(16)


def topic_ids(options: ReadOptions, topics: Iterable[str]) -> dict[str, str]:
    """Return the identity of each of a reader's topics. Raises `OptionError`, `OSError` and `ClientError`."""
    wanted = sorted(set(topics))
    return _in_directory(options.path, wanted) if options.path is not None else _in_cluster(options, wanted)


def _in_directory(path: str, topics: list[str]) -> dict[str, str]:
    paths = paths_in(path)
    found: dict[str, str] = {}
    for partition, log in sorted(find_logs(paths).items()):
        if partition.topic in topics:
            where = f"the one in {log.log_directory}"
            found.setdefault(partition.topic, _named(_id_in(f"{log.path}/{PARTITION_METADATA}"), where))
    return found


def _id_in(path: str) -> bytes:
    try:
        return topic_id_from_text(DISK.read_whole(path))
    except FileNotFoundError:
        return NO_ID
    except MalformedCheckpoint as error:
        raise OptionError(f"{path} is malformed: {error}") from None


def _in_cluster(options: ReadOptions, topics: list[str]) -> dict[str, str]:
    with Client(options.bootstrap_servers or "", options.client_settings) as client:
        answer = client.metadata(topics)
        where = f"the one of cluster {answer.cluster_id or client.bootstrap_servers}"
    return {topic.name: _named(topic.topic_id, where) for topic in answer.topics}


def _named(topic_id: bytes, otherwise: str) -> str:
    """Return the id as Kafka writes it, or `otherwise` if there is none."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if topic_id != NO_ID else otherwise
