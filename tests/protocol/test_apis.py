"""Which APIs there are, in which versions, and that looking one up imports no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class, get_response_class
from tests.cases import for_each

# The newest version of every API of Kafka 4.4's broker listener. The oldest is 0 for all of them.
NEWEST = {
    "Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10, "OffsetFetch": 10,
    "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5, "DescribeGroups": 6,
    "ListGroups": 5, "SaslHandshake": 1, "ApiVersions": 5, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2,
    "InitProducerId": 6, "OffsetForLeaderEpoch": 4, "AddPartitionsToTxn": 5, "AddOffsetsToTxn": 4, "EndTxn": 5,
    "WriteTxnMarkers": 2, "TxnOffsetCommit": 6, "DescribeAcls": 3, "CreateAcls": 3, "DeleteAcls": 3,
    "DescribeConfigs": 4, "AlterConfigs": 2, "AlterReplicaLogDirs": 2, "DescribeLogDirs": 5, "SaslAuthenticate": 2,
    "CreatePartitions": 3, "CreateDelegationToken": 3, "RenewDelegationToken": 2, "ExpireDelegationToken": 2,
    "DescribeDelegationToken": 3, "DeleteGroups": 3, "ElectLeaders": 2, "IncrementalAlterConfigs": 1,
    "AlterPartitionReassignments": 1, "ListPartitionReassignments": 0, "OffsetDelete": 0, "DescribeClientQuotas": 1,
    "AlterClientQuotas": 1, "DescribeUserScramCredentials": 0, "AlterUserScramCredentials": 0, "DescribeQuorum": 2,
    "UpdateFeatures": 2, "DescribeCluster": 2, "DescribeProducers": 0, "UnregisterBroker": 0,
    "DescribeTransactions": 0, "ListTransactions": 2, "ConsumerGroupHeartbeat": 1, "ConsumerGroupDescribe": 1,
    "GetTelemetrySubscriptions": 0, "PushTelemetry": 0, "ListConfigResources": 1, "DescribeTopicPartitions": 0,
    "ShareGroupHeartbeat": 1, "ShareGroupDescribe": 1, "ShareFetch": 2, "ShareAcknowledge": 2, "AddRaftVoter": 1,
    "RemoveRaftVoter": 0, "InitializeShareGroupState": 0, "ReadShareGroupState": 0, "WriteShareGroupState": 1,
    "DeleteShareGroupState": 0, "ReadShareGroupStateSummary": 1, "StreamsGroupHeartbeat": 1, "StreamsGroupDescribe": 1,
    "DescribeShareGroupOffsets": 1, "AlterShareGroupOffsets": 0, "DeleteShareGroupOffsets": 0,
    "StreamsGroupTopologyDescriptionUpdate": 0, "UnregisterController": 0,
}  # fmt: skip


def test_every_api_is_declared_from_version_0_to_the_newest() -> None:
    assert {get_api_name(key): get_request_class(key).versions for key in ApiKey} == {
        name: range(0, newest + 1) for name, newest in NEWEST.items()
    }


@for_each("key", ApiKey)
def test_request_and_response_versions_agree(key: ApiKey) -> None:
    request, response = get_request_class(key), get_response_class(key)
    assert (request.__name__, response.__name__) == (f"{get_api_name(key)}Request", f"{get_api_name(key)}Response")
    assert request.api_key == response.api_key == key
    assert request.versions == response.versions
    assert request.flexible == response.flexible


@pytest.mark.parametrize("key", [-1, 4, 7, 95, 32767])
def test_an_unknown_api_key_raises_an_error(key: int) -> None:
    for look_up in (get_request_class, get_response_class, get_api_name):
        with pytest.raises(ValueError):
            look_up(key)


def imported(code: str) -> set[str]:
    """The modules of ours that a fresh interpreter has imported after running the code."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*[name for name in sys.modules if 'minibroker' in name])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(shown.stdout.split())


def test_the_list_of_apis_imports_no_message() -> None:
    assert imported("import minibroker.protocol.apis") == {
        "minibroker", "minibroker.protocol", "minibroker.protocol.apis"
    }  # fmt: skip


def test_looking_up_an_api_imports_only_its_file() -> None:
    modules = imported("from minibroker.protocol.apis import get_request_class\nget_request_class(3)")
    files = {name for name in modules if name.startswith("minibroker.protocol.messages.")}
    assert files == {"minibroker.protocol.messages.metadata"}
