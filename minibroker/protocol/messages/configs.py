"""Configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32


class DescribeConfigsRequest(
    Message, api_key=32, versions="0-4", flexible="4+", kips={0: 133, 1: 226, 2: 219, 3: 569, 4: 482}
):
    """Asks for configs of resources, all or by name."""

    resources: list[DescribeConfigsResource] = field(
        about="Whose configs are wanted; those of a broker are asked of that broker itself."
    )
    include_synonyms: bool = field(
        "1+", about="Also asks what else has set the config, so that one sees what would hold if this were deleted."
    )
    include_documentation: bool = field("3+", about="Also asks for a sentence on each config.")

    class DescribeConfigsResource(Struct):
        resource_type: int8 = field(
            about="What it is: 2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."
        )
        resource_name: str = field(
            about="Which one: a topic, a broker's number (empty for the cluster-wide configs), or a group."
        )
        configuration_keys: list[str] | None = field(about="The configs that are wanted; null for all.")


class DescribeConfigsResponse(
    Message, api_key=32, versions="0-4", flexible="4+", kips={0: 133, 1: 226, 2: 219, 3: 569, 4: 482}
):
    """Lists configs with their source, and whether they are sensitive, read-only or defaults."""

    throttle_time_ms: int32 = field()
    results: list[DescribeConfigsResult] = field(about="The configs of each resource, or its error.")

    class DescribeConfigsResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field(
            about="What it is: 2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."
        )
        resource_name: str = field(about="The topic, broker or group that has these configs.")
        configs: list[DescribeConfigsResourceResult] = field(
            about="The configs with their values, and where these come from."
        )

        class DescribeConfigsResourceResult(Struct):
            name: str = field(about="The config, such as retention.ms.")
            value: str | None = field(about="Its value as text; null if it is sensitive or not set.")
            read_only: bool = field(about="Whether it cannot be changed while the broker runs.")
            is_default: bool = field("0", about="Whether it is the default; version 1 says more, by its source.")
            config_source: int8 = field(
                "1+",
                default=-1,
                about="Who has set it: 1 the topic, 2 to 4 a broker or the cluster, 5 the built-in default.",
            )
            is_sensitive: bool = field(about="Whether it is a secret, so that the value is withheld.")
            synonyms: list[DescribeConfigsSynonym] = field(
                "1+", about="All places that set it, the one that counts first; what follows would hold without it."
            )
            config_type: int8 = field(
                "3+",
                about="How to read the text: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, and so on.",
            )
            documentation: str | None = field(
                "3+", about="What the config does, in words; null if that was not asked for."
            )

            class DescribeConfigsSynonym(Struct):
                name: str = field(
                    about="What the config is called there: a topic's retention.ms is the broker's log.retention.ms."
                )
                value: str | None = field(about="The value that is set there.")
                source: int8 = field(about="Which place it is, by the same numbers as config_source.")


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+", kips={0: 133, 1: 219, 2: 482}):
    """Asks to replace all configs of resources. Configs that are not named get their defaults."""

    resources: list[AlterConfigsResource] = field(
        about="Whose configs are replaced; all that a resource had before and that is not listed here is lost."
    )
    validate_only: bool = field()

    class AlterConfigsResource(Struct):
        resource_type: int8 = field(about="What it is: 2 a topic, 4 a broker, 16 client metrics, 32 a group.")
        resource_name: str = field(
            about="Which one: a topic, a broker's number (empty for the cluster-wide configs), or a group."
        )
        configs: list[AlterableConfig] = field(about="All configs that the resource should have of its own.")

        class AlterableConfig(Struct):
            name: str = field(about="The config to set, such as retention.ms.")
            value: str | None = field(about="Its value as text; one that cannot be read is refused.")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+", kips={0: 133, 1: 219, 2: 482}):
    """Says for each resource whether it was done."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field(about="A result for each resource of the request.")

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field(
            about="What was to be changed: 2 a topic, 4 a broker, 16 client metrics, 32 a group."
        )
        resource_name: str = field(about="The topic, broker or group that this is the result of.")


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+", kips={0: 339, 1: 482}):
    """Asks to set, delete, append to or subtract from single configs (KIP-339)."""

    resources: list[AlterConfigsResource] = field(
        about="Whose configs are changed; those that are not named stay as they are, unlike in AlterConfigs."
    )
    validate_only: bool = field()

    class AlterConfigsResource(Struct):
        resource_type: int8 = field(
            about="What it is: 2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."
        )
        resource_name: str = field(
            about="Which one: a topic, a broker's number (empty for the cluster-wide configs), or a group."
        )
        configs: list[AlterableConfig] = field(about="The changes; either all of one resource are made or none.")

        class AlterableConfig(Struct):
            name: str = field(about="The config to change, such as retention.ms.")
            config_operation: int8 = field(
                about="What to do: 0 sets it, 1 deletes it, 2 appends to a list, 3 takes out of a list."
            )
            value: str | None = field(
                about="The value as text, or the items to append or to take out; null to delete the config."
            )


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+", kips={0: 339, 1: 482}):
    """Says for each resource whether it was done."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field(about="A result for each resource of the request.")

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field(
            about="What was to be changed: 2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group."
        )
        resource_name: str = field(about="The topic, broker or group that this is the result of.")


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+", kips={0: 1000, 1: 1142}):
    """Asks which resources have configs; in version 0 only client metrics."""

    resource_types: list[int8] = field(
        "1+", about="Which kinds: 2 topics, 4 brokers, 8 loggers, 16 client metrics, 32 groups; empty for all."
    )


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+", kips={0: 1000, 1: 1142}):
    """Lists resources by name and type."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    config_resources: list[ConfigResource] = field(about="The resources that have, or may have, configs of their own.")

    class ConfigResource(Struct):
        resource_name: str = field(about="What it is called, as DescribeConfigs wants it.")
        resource_type: int8 = field(
            "1+",
            default=16,
            about="What it is: 2 a topic, 4 a broker, 8 a broker's loggers, 16 client metrics, 32 a group.",
        )
