"""DescribeQuorum, AddRaftVoter and RemoveRaftVoter: the quorum of the metadata log (KIP-595, KIP-853).

Behaviour: the first node leads the quorum, and is its only voter unless Kafka's log directory has others; the other
nodes are observers. All share one log, so no replica is ever behind. Only partition 0 of `__cluster_metadata` is
described. Voters cannot be added or removed, whatever the level of kraft.version: a valid request is answered with
UNSUPPORTED_VERSION, as by Kafka with level 0.

Versions: DescribeQuorum 1 brought the time of a replica's last fetch, 2 directories of replicas, addresses of voters
and error messages.

Not implemented: controller listeners; a voter's addresses are those of its node.
"""

from __future__ import annotations

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.leaders import NOT_HOSTED
from minibroker.broker.metadata.partitions import METADATA_TOPIC
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, DENIAL_MESSAGES, DESCRIBE_CLUSTER, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, run_steps_of_each_item

TopicAnswer = DescribeQuorumResponse.TopicData
PartitionAnswer = TopicAnswer.PartitionData
ReplicaState = DescribeQuorumResponse.ReplicaState
UNKNOWN_TIME = -1


@handles(ApiKey.DESCRIBE_QUORUM)
async def describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    context.authorize(DESCRIBE_CLUSTER, message=DENIAL_MESSAGES[ResourceType.CLUSTER])
    asked = await run_in_slices(
        apply_to_items_in_steps(
            lambda topic: (topic.topic_name, [one.partition_index for one in topic.partitions]), request.topics
        )
    )
    if asked != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=(
                await run_in_slices(run_steps_of_each_item(lambda one: _make_unknown_partition_answers(*one), asked))
            )
        )
    topic = TopicAnswer(topic_name=METADATA_TOPIC, partitions=[_describe_quorum_partition(context)])
    return DescribeQuorumResponse(topics=[topic], nodes=_list_voters(context))


def _make_unknown_partition_answers(name: str, indexes: list[int]) -> Steps[TopicAnswer]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = yield from apply_to_items_in_steps(
        lambda index: PartitionAnswer(partition_index=index, error_code=code, error_message=NOT_HOSTED), indexes
    )
    return TopicAnswer(topic_name=name, partitions=partitions)


def _describe_quorum_partition(context: RequestContext) -> PartitionAnswer:
    cluster = context.cluster
    quorum = cluster.metadata_log
    voters = dict.fromkeys(quorum.voters)
    return PartitionAnswer(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.storage.high_watermark,
        current_voters=[_describe_quorum_replica(context, voter) for voter in voters],
        observers=[_describe_quorum_replica(context, node) for node in cluster.nodes if node not in voters],
    )


def _describe_quorum_replica(context: RequestContext, replica_id: int) -> ReplicaState:
    """Return the state of a replica. For one outside this process, nothing is known."""
    cluster = context.cluster
    if replica_id not in cluster.nodes and replica_id != cluster.metadata_log.leader_id:
        return ReplicaState(replica_id=replica_id, log_end_offset=-1)
    now_ms = cluster.clock.wall_ms()
    return ReplicaState(
        replica_id=replica_id,
        log_end_offset=cluster.metadata_log.storage.log_end_offset,
        last_fetch_timestamp=now_ms if context.version > 0 else UNKNOWN_TIME,
        last_caught_up_timestamp=now_ms if context.version > 0 else UNKNOWN_TIME,
    )


def _list_voters(context: RequestContext) -> list[DescribeQuorumResponse.Node]:
    """Return the voters of this process with their addresses."""
    nodes = context.cluster.nodes
    shape = DescribeQuorumResponse.Node
    return [
        shape(
            node_id=voter,
            listeners=[
                shape.Listener(name=name, host=endpoint.host, port=endpoint.port)
                for name, endpoint in nodes[voter].endpoints.items()
            ],
        )
        for voter in context.cluster.metadata_log.voters
        if voter in nodes
    ]


@handles(ApiKey.ADD_RAFT_VOTER)
def add_raft_voter(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    refusal = _make_fixed_voters_error(context, request, "Add", "adding")
    if request.cluster_id in (None, context.cluster.cluster_id) and not request.listeners:
        message = "Add voter request didn't include the endpoint for the default listener"
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, message)
    raise refusal


@handles(ApiKey.REMOVE_RAFT_VOTER)
def remove_raft_voter(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    raise _make_fixed_voters_error(context, request, "Remove", "removing")


def _make_fixed_voters_error(
    context: RequestContext, request: AddRaftVoterRequest | RemoveRaftVoterRequest, subject: str, action: str
) -> KafkaError:
    """Check the right to alter the cluster; return the error for a change of the voters, which are fixed."""
    context.authorize(ALTER_CLUSTER, message=DENIAL_MESSAGES[ResourceType.CLUSTER])
    cluster_id = context.cluster.cluster_id
    if request.cluster_id not in (None, cluster_id):
        message = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"'
        return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"{subject} voter request didn't include a valid voter")
    is_dynamic = context.cluster.metadata_log.kraft_version > 0
    reason = "all of it is one process" if is_dynamic else "the kraft.version feature is 0"
    message = f"Cluster doesn't support {action} voter because {reason}"
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
