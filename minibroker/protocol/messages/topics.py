"""Creating topics, adding partitions, and deleting topics."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32


class CreateTopicsRequest(
    Message, api_key=19, versions="0-7", flexible="5+", kips={0: 4, 3: 219, 4: 464, 5: 525, 6: 599, 7: 516}
):
    """Asks to create topics by partition count and replication factor, or by explicit assignments."""

    topics: list[CreatableTopic] = field(about="The topics to create; each succeeds or fails on its own.")
    timeout_ms: int32 = field(
        default=60000,
        about="How long to wait until the topics exist; after that the creation goes on, and the answer is an error.",
    )
    validate_only: bool = field("1+")

    class CreatableTopic(Struct):
        name: str = field(
            about='What to call the topic; "." and "_" count as equal, since metrics cannot tell them apart.'
        )
        num_partitions: int32 = field(
            about="How many partitions; -1 takes the broker's default, or the number of the assignments."
        )
        replication_factor: int16 = field(
            about="How many copies of each partition; -1 takes the broker's default, or what the assignments say."
        )
        assignments: list[CreatableReplicaAssignment] = field(
            about="Which brokers get which partition, to place replicas by hand; else empty."
        )
        configs: list[CreatableTopicConfig] = field(
            about="The topic's own configs, which replace the broker's defaults."
        )

        class CreatableReplicaAssignment(Struct):
            partition_index: int32 = field()
            broker_ids: list[int32] = field(about="The brokers that get a copy; the first one is the preferred leader.")

        class CreatableTopicConfig(Struct):
            name: str = field(about="The config to set, such as retention.ms.")
            value: str | None = field(about="Its value as text; the broker refuses the topic if it cannot be read.")


class CreateTopicsResponse(
    Message, api_key=19, versions="0-7", flexible="5+", kips={0: 4, 2: 124, 3: 219, 4: 464, 5: 525, 6: 599, 7: 516}
):
    """Says for each topic whether it was created, and from version 5 on with which partitions and configs."""

    throttle_time_ms: int32 = field("2+")
    topics: list[CreatableTopicResult] = field(about="A result for each topic of the request.")

    class CreatableTopicResult(Struct):
        name: str = field(about="The topic this is the result of.")
        topic_id: Uuid = field("7+")
        error_code: int16 = field()
        error_message: str | None = field("1+")
        topic_config_error_code: int16 = field(
            "5+",
            tag=0,
            about="Why configs and counts are left out: the client may create topics, but not see their configs.",
        )
        num_partitions: int32 = field(
            "5+",
            default=-1,
            about="How many partitions it got, in case the request left it to the broker; -1 if unknown.",
        )
        replication_factor: int16 = field("5+", default=-1, about="How many copies each partition got; -1 if unknown.")
        configs: list[CreatableTopicConfigs] | None = field(
            "5+",
            about="All configs that the new topic works with, defaults included, unless the client may not see them.",
        )

        class CreatableTopicConfigs(Struct):
            name: str = field(about="The config, such as retention.ms.")
            value: str | None = field(about="Its value as text; null if it is sensitive.")
            read_only: bool = field(about="Whether it cannot be changed while the broker runs.")
            config_source: int8 = field(
                default=-1, about="Who has set it: 1 the topic, 2 to 4 a broker or the cluster, 5 the built-in default."
            )
            is_sensitive: bool = field(about="Whether it is a secret, so that the value is withheld.")


class DeleteTopicsRequest(
    Message, api_key=20, versions="0-6", flexible="4+", kips={0: 4, 2: 219, 4: 482, 5: 599, 6: 516}
):
    """Asks to delete topics by name or, from version 6 on, by id."""

    topics: list[DeleteTopicState] = field("6+", about="The topics to delete, each by name or by id.")
    topic_names: list[str] = field("0-5", about="The topics to delete, before version 6 could also name them by id.")
    timeout_ms: int32 = field(
        about="How long to wait for the deletion; after that it goes on, and the answer is an error."
    )

    class DeleteTopicState(Struct):
        name: str | None = field(default=None, about="The topic to delete; null if the id says which.")
        topic_id: Uuid = field(
            about="Deletes exactly this topic, and not a newer one of the same name; all zero if the name says which."
        )


class DeleteTopicsResponse(
    Message, api_key=20, versions="0-6", flexible="4+", kips={0: 4, 1: 124, 2: 219, 4: 482, 5: 599, 6: 516}
):
    """Says for each topic whether it was deleted."""

    throttle_time_ms: int32 = field("1+")
    responses: list[DeletableTopicResult] = field(about="A result for each topic of the request.")

    class DeletableTopicResult(Struct):
        name: str | None = field(
            nullable="6+", about="The topic this is the result of; null if it was asked by an id that is unknown."
        )
        topic_id: Uuid = field("6+")
        error_code: int16 = field()
        error_message: str | None = field("5+", default=None)


class CreatePartitionsRequest(
    Message, api_key=37, versions="0-3", flexible="2+", kips={0: 195, 1: 219, 2: 482, 3: 599}
):
    """Asks to increase the partition count of topics."""

    topics: list[CreatePartitionsTopic] = field(
        about="The topics to grow; partitions can be added, but never taken away."
    )
    timeout_ms: int32 = field(
        about="How long to wait until the partitions exist; after that the work goes on, and the answer is an error."
    )
    validate_only: bool = field()

    class CreatePartitionsTopic(Struct):
        name: str = field(
            about="The topic to grow; the records it has stay where they are, so keys may change their partition."
        )
        count: int32 = field(about="How many partitions it should have in all, so more than it has.")
        assignments: list[CreatePartitionsAssignment] | None = field(
            about="The brokers of each new partition, to place replicas by hand; null lets the cluster choose."
        )

        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int32] = field(about="The brokers that get a copy; the first one is the preferred leader.")


class CreatePartitionsResponse(
    Message, api_key=37, versions="0-3", flexible="2+", kips={0: 195, 1: 219, 2: 482, 3: 599}
):
    """Says for each topic whether it has the new partitions."""

    throttle_time_ms: int32 = field()
    results: list[CreatePartitionsTopicResult] = field(about="A result for each topic of the request.")

    class CreatePartitionsTopicResult(Struct):
        name: str = field(about="The topic this is the result of.")
        error_code: int16 = field()
        error_message: str | None = field(default=None)
