"""The releases of Apache Kafka: the versions of APIs that each served, and its defaults of settings.

Up to 3.2 a release is a broker with ZooKeeper; from 3.3, the first in which KRaft was ready for production (KIP-833),
it is one with KRaft, which had no SCRAM credentials before 3.5 and no delegation tokens before 3.6.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from minibroker.protocol.apis import ApiKey

RELEASES: Final = (
    "0.8.2",
    "0.9",
    "0.10.0",
    "0.10.1",
    "0.10.2",
    "0.11",
    "1.0",
    "1.1",
    "2.0",
    "2.1",
    "2.2",
    "2.3",
    "2.4",
    "2.5",
    "2.6",
    "2.7",
    "2.8",
    "3.0",
    "3.1",
    "3.2",
    "3.3",
    "3.4",
    "3.5",
    "3.6",
    "3.7",
    "3.8",
    "3.9",
    "4.0",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
)

# The versions from a release on. The source is the table `ApiKeys` in each release's newest kafka-clients, with which
# conformance/emulation compares this one.
CHANGES: Final[dict[ApiKey, str]] = {
    ApiKey.PRODUCE: (
        "0.8.2: 0-0, 0.9: 0-1, 0.10.0: 0-2, 0.11: 0-3, 1.0: 0-5, 2.0: 0-6, 2.1: 0-7, 2.4: 0-8, 2.8: 0-9, 3.7: "
        "0-10, 3.8: 0-11, 4.0: 0-12, 4.1: 0-13"
    ),
    ApiKey.FETCH: (
        "0.8.2: 0-0, 0.9: 0-1, 0.10.0: 0-2, 0.10.1: 0-3, 0.11: 0-5, 1.0: 0-6, 1.1: 0-7, 2.0: 0-8, 2.1: 0-10, "
        "2.3: 0-11, 2.7: 0-12, 3.1: 0-13, 3.5: 0-15, 3.7: 0-16, 3.9: 0-17, 4.0: 4-17, 4.1: 4-18"
    ),
    ApiKey.LIST_OFFSETS: (
        "0.8.2: 0-0, 0.10.1: 0-1, 0.11: 0-2, 2.0: 0-3, 2.1: 0-4, 2.2: 0-5, 2.8: 0-6, 3.0: 0-7, 3.5: 0-8, 3.9: "
        "0-9, 4.0: 1-10, 4.2: 1-11"
    ),
    ApiKey.METADATA: (
        "0.8.2: 0-0, 0.10.0: 0-1, 0.10.1: 0-2, 0.11: 0-4, 1.0: 0-5, 2.0: 0-6, 2.1: 0-7, 2.3: 0-8, 2.4: 0-9, "
        "2.8: 0-11, 3.1: 0-12, 4.0: 0-13"
    ),
    ApiKey.OFFSET_COMMIT: (
        "0.8.2: 0-1, 0.9: 0-2, 0.11: 0-3, 2.0: 0-4, 2.1: 0-6, 2.3: 0-7, 2.4: 0-8, 3.7: 0-9, 4.0: 2-9, 4.2: 2-10"
    ),
    ApiKey.OFFSET_FETCH: (
        "0.8.2: 0-1, 0.10.2: 0-2, 0.11: 0-3, 2.0: 0-4, 2.1: 0-5, 2.4: 0-6, 2.5: 0-7, 3.0: 0-8, 3.7: 0-9, 4.0: "
        "1-9, 4.2: 1-10"
    ),
    ApiKey.FIND_COORDINATOR: "0.8.2: 0-0, 0.11: 0-1, 2.0: 0-2, 2.4: 0-3, 3.0: 0-4, 3.8: 0-5, 3.9: 0-6",
    ApiKey.JOIN_GROUP: "0.9: 0-0, 0.10.1: 0-1, 0.11: 0-2, 2.0: 0-3, 2.2: 0-4, 2.3: 0-5, 2.4: 0-6, 2.5: 0-7, 3.2: 0-9",
    ApiKey.HEARTBEAT: "0.9: 0-0, 0.11: 0-1, 2.0: 0-2, 2.3: 0-3, 2.4: 0-4",
    ApiKey.LEAVE_GROUP: "0.9: 0-0, 0.11: 0-1, 2.0: 0-2, 2.4: 0-4, 3.2: 0-5",
    ApiKey.SYNC_GROUP: "0.9: 0-0, 0.11: 0-1, 2.0: 0-2, 2.3: 0-3, 2.4: 0-4, 2.5: 0-5",
    ApiKey.DESCRIBE_GROUPS: "0.9: 0-0, 0.11: 0-1, 2.0: 0-2, 2.3: 0-3, 2.4: 0-5, 4.0: 0-6",
    ApiKey.LIST_GROUPS: "0.9: 0-0, 0.11: 0-1, 2.0: 0-2, 2.4: 0-3, 2.6: 0-4, 3.8: 0-5",
    ApiKey.SASL_HANDSHAKE: "0.10.0: 0-0, 1.0: 0-1",
    ApiKey.API_VERSIONS: "0.10.0: 0-0, 0.11: 0-1, 2.0: 0-2, 2.4: 0-3, 3.9: 0-4, 4.4: 0-5",
    ApiKey.CREATE_TOPICS: "0.10.1: 0-0, 0.10.2: 0-1, 0.11: 0-2, 2.0: 0-3, 2.4: 0-5, 2.7: 0-6, 2.8: 0-7, 4.0: 2-7",
    ApiKey.DELETE_TOPICS: "0.10.1: 0-0, 0.11: 0-1, 2.0: 0-2, 2.1: 0-3, 2.4: 0-4, 2.7: 0-5, 2.8: 0-6, 4.0: 1-6",
    ApiKey.DELETE_RECORDS: "0.11: 0-0, 2.0: 0-1, 2.6: 0-2",
    ApiKey.INIT_PRODUCER_ID: "0.11: 0-0, 2.0: 0-1, 2.4: 0-2, 2.5: 0-3, 2.7: 0-4, 3.8: 0-5",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0.11: 0-0, 2.0: 0-1, 2.1: 0-2, 2.3: 0-3, 2.8: 0-4, 4.0: 2-4",
    ApiKey.ADD_PARTITIONS_TO_TXN: "0.11: 0-0, 2.0: 0-1, 2.7: 0-2, 2.8: 0-3, 3.6: 0-4, 3.8: 0-5",
    ApiKey.ADD_OFFSETS_TO_TXN: "0.11: 0-0, 2.0: 0-1, 2.7: 0-2, 2.8: 0-3, 3.8: 0-4",
    ApiKey.END_TXN: "0.11: 0-0, 2.0: 0-1, 2.7: 0-2, 2.8: 0-3, 3.8: 0-4, 4.0: 0-5",
    ApiKey.WRITE_TXN_MARKERS: "0.11: 0-0, 2.8: 0-1, 4.0: 1-1, 4.2: 1-2",
    ApiKey.TXN_OFFSET_COMMIT: "0.11: 0-0, 2.0: 0-1, 2.1: 0-2, 2.5: 0-3, 3.8: 0-4, 4.0: 0-5, 4.4: 0-6",
    ApiKey.DESCRIBE_ACLS: "0.11: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: 0-3, 4.0: 1-3",
    ApiKey.CREATE_ACLS: "0.11: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: 0-3, 4.0: 1-3",
    ApiKey.DELETE_ACLS: "0.11: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: 0-3, 4.0: 1-3",
    ApiKey.DESCRIBE_CONFIGS: "0.11: 0-0, 1.1: 0-1, 2.0: 0-2, 2.6: 0-3, 2.8: 0-4, 4.0: 1-4",
    ApiKey.ALTER_CONFIGS: "0.11: 0-0, 2.0: 0-1, 2.8: 0-2",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0: 0-0, 2.0: 0-1, 2.8: 0-2, 4.0: 1-2",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0: 0-0, 2.0: 0-1, 2.6: 0-2, 3.2: 0-3, 3.3: 0-4, 4.0: 1-4, 4.3: 1-5",
    ApiKey.SASL_AUTHENTICATE: "1.0: 0-0, 2.2: 0-1, 2.5: 0-2",
    ApiKey.CREATE_PARTITIONS: "1.0: 0-0, 2.0: 0-1, 2.5: 0-2, 2.7: 0-3",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1: 0-0, 2.0: 0-1, 2.4: 0-2, 3.3: none, 3.6: 0-3, 4.0: 1-3",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: none, 3.6: 0-2, 4.0: 1-2",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: none, 3.6: 0-2, 4.0: 1-2",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1: 0-0, 2.0: 0-1, 2.5: 0-2, 3.3: none, 3.6: 0-3, 4.0: 1-3",
    ApiKey.DELETE_GROUPS: "1.1: 0-0, 2.0: 0-1, 2.4: 0-2, 4.4: 0-3",
    ApiKey.ELECT_LEADERS: "2.2: 0-0, 2.4: 0-2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3: 0-0, 2.4: 0-1",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4: 0-0, 4.1: 0-1",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4: 0-0",
    ApiKey.OFFSET_DELETE: "2.4: 0-0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6: 0-0, 2.8: 0-1",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6: 0-0, 2.8: 0-1",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7: 0-0, 3.3: none, 3.5: 0-0",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7: 0-0, 3.3: none, 3.5: 0-0",
    ApiKey.DESCRIBE_QUORUM: "3.3: 0-1, 3.9: 0-2",
    ApiKey.UPDATE_FEATURES: "2.7: 0-0, 3.3: 0-1, 4.0: 0-2",
    ApiKey.DESCRIBE_CLUSTER: "2.8: 0-0, 3.7: 0-1, 4.0: 0-2",
    ApiKey.DESCRIBE_PRODUCERS: "2.8: 0-0",
    ApiKey.UNREGISTER_BROKER: "3.3: 0-0",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0: 0-0",
    ApiKey.LIST_TRANSACTIONS: "3.0: 0-0, 3.8: 0-1, 4.1: 0-2",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "3.7: 0-0, 4.0: 0-1",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.8: 0-0, 4.0: 0-1",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "3.7: 0-0",
    ApiKey.PUSH_TELEMETRY: "3.7: 0-0",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7: 0-0, 4.1: 0-1",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8: 0-0",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.1: 1-1",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1: 1-1",
    ApiKey.SHARE_FETCH: "4.1: 1-1, 4.2: 1-2",
    ApiKey.SHARE_ACKNOWLEDGE: "4.1: 1-1, 4.2: 1-2",
    ApiKey.ADD_RAFT_VOTER: "3.9: 0-0, 4.2: 0-1",
    ApiKey.REMOVE_RAFT_VOTER: "3.9: 0-0",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "4.1: 0-0",
    ApiKey.READ_SHARE_GROUP_STATE: "4.1: 0-0",
    ApiKey.WRITE_SHARE_GROUP_STATE: "4.1: 0-0, 4.2: 0-1",
    ApiKey.DELETE_SHARE_GROUP_STATE: "4.1: 0-0",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "4.1: 0-0, 4.2: 0-1",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "4.2: 0-0, 4.4: 0-1",
    ApiKey.STREAMS_GROUP_DESCRIBE: "4.2: 0-0, 4.4: 0-1",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1: 0-0, 4.2: 0-1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1: 0-0",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.1: 0-0",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "4.4: 0-0",
    ApiKey.UNREGISTER_CONTROLLER: "4.4: 0-0",
}

NO_BOUND: Final = str((1 << 63) - 1)
# Of settings whose defaults changed, as far as clients notice: (the release before which it holds, the default), the
# oldest first. From the last on it is today's. The sources are `kafka.server.Defaults` in the releases around each
# change, with which conformance/emulation compares this table up to 2.5, and the KIPs.
UNTIL: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    # The format of topics (KIP-32, KIP-98): a release writes no newer one than its own.
    "log.message.format.version": (("0.10.0", "0.9.0"), ("0.11", "0.10.2")),
    "message.max.bytes": (("2.5", "1000012"),),  # KAFKA-4203
    "group.max.session.timeout.ms": (("0.10.0", "30000"), ("2.3", "300000")),
    "offsets.retention.minutes": (("2.0", "1440"),),  # KIP-186
    "unclean.leader.election.enable": (("0.11", "true"),),  # KIP-106
    "transaction.partition.verification.enable": (("3.6", "false"),),  # KIP-890
    "log.message.timestamp.after.max.ms": (("4.0", NO_BOUND),),  # KIP-1030
}


def is_release_or_newer(release: str, first: str) -> bool:
    """Return whether `release` is `first` or newer."""
    return RELEASES.index(release) >= RELEASES.index(first)


@cache
def list_unstable_versions(release: str) -> dict[ApiKey, int]:
    """Return the versions that a release serves only with `unstable.api.versions.enable`, if this broker has them."""
    if release == "4.1":
        return dict.fromkeys((ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH), 10) | {ApiKey.INIT_PRODUCER_ID: 6}
    return {ApiKey.INIT_PRODUCER_ID: 6} if is_release_or_newer(release, "4.2") else {}


def list_versions_of_release(release: str) -> dict[ApiKey, range]:
    """Return the versions of each API that a release announced. Raises KeyError for an unknown release."""
    position = {name: index for index, name in enumerate(RELEASES)}[release]
    versions: dict[ApiKey, range] = {}
    for key, changes in CHANGES.items():
        for change in changes.split(", "):
            since, _, text = change.partition(": ")
            if RELEASES.index(since) > position:
                break
            if text == "none":
                versions.pop(key, None)
            else:
                first, _, last = text.partition("-")
                versions[key] = range(int(first), int(last) + 1)
    return versions


def parse_release(text: str) -> str:
    """Return the release of a version: 0.10.2 for "0.10.2.1", 3.9 for "3.9.1". Raises ValueError."""
    parts = text.strip().split(".")
    for count in (3, 2):
        name = ".".join(parts[:count])
        if name in RELEASES:
            return name
    raise ValueError(f"{text!r} is not a known release; they are {', '.join(RELEASES)}")


def list_settings_of_release(release: str) -> dict[str, str]:
    """Return the defaults of a release that are not today's."""
    found = {}
    for name, changes in UNTIL.items():
        value = next((value for until, value in changes if not is_release_or_newer(release, until)), None)
        if value is not None:
            found[name] = value
    return found
