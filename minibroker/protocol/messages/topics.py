"""Creating topics, adding partitions, and deleting topics."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32


class CreateTopicsRequest(Message, api_key=19, versions="0-7", flexible="5+"):
    """Asks to create topics by partition count and replication factor, or by explicit assignments."""

    topics: list[CreatableTopic] = field()
    timeout_ms: int32 = field(default=60000)
    validate_only: bool = field("1+")

    class CreatableTopic(Struct):
        name: str = field()
        num_partitions: int32 = field()
        replication_factor: int16 = field()
        assignments: list[CreatableReplicaAssignment] = field()
        configs: list[CreatableTopicConfig] = field()

        class CreatableReplicaAssignment(Struct):
            partition_index: int32 = field()
            broker_ids: list[int32] = field()

        class CreatableTopicConfig(Struct):
            name: str = field()
            value: str | None = field()


class CreateTopicsResponse(Message, api_key=19, versions="0-7", flexible="5+"):
    """Says for each topic whether it was created, and from version 5 on with which partitions and configs."""

    throttle_time_ms: int32 = field("2+")
    topics: list[CreatableTopicResult] = field()

    class CreatableTopicResult(Struct):
        name: str = field()
        topic_id: Uuid = field("7+")
        error_code: int16 = field()
        error_message: str | None = field("1+")
        topic_config_error_code: int16 = field("5+", tag=0)
        num_partitions: int32 = field("5+", default=-1)
        replication_factor: int16 = field("5+", default=-1)
        configs: list[CreatableTopicConfigs] | None = field("5+")

        class CreatableTopicConfigs(Struct):
            name: str = field()
            value: str | None = field()
            read_only: bool = field()
            config_source: int8 = field(default=-1)
            is_sensitive: bool = field()


class DeleteTopicsRequest(Message, api_key=20, versions="0-6", flexible="4+"):
    """Asks to delete topics by name or, from version 6 on, by id."""

    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[str] = field("0-5")
    timeout_ms: int32 = field()

    class DeleteTopicState(Struct):
        name: str | None = field(default=None)
        topic_id: Uuid = field()


class DeleteTopicsResponse(Message, api_key=20, versions="0-6", flexible="4+"):
    """Says for each topic whether it was deleted."""

    throttle_time_ms: int32 = field("1+")
    responses: list[DeletableTopicResult] = field()

    class DeletableTopicResult(Struct):
        name: str | None = field(nullable="6+")
        topic_id: Uuid = field("6+")
        error_code: int16 = field()
        error_message: str | None = field("5+", default=None)


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    """Asks to increase the partition count of topics."""

    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: int32 = field()
    validate_only: bool = field()

    class CreatePartitionsTopic(Struct):
        name: str = field()
        count: int32 = field()
        assignments: list[CreatePartitionsAssignment] | None = field()

        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int32] = field()


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """Says for each topic whether it has the new partitions."""

    throttle_time_ms: int32 = field()
    results: list[CreatePartitionsTopicResult] = field()

    class CreatePartitionsTopicResult(Struct):
        name: str = field()
        error_code: int16 = field()
        error_message: str | None = field(default=None)
