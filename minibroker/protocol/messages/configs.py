"""Configs of topics, brokers, groups and client metrics."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32


class DescribeConfigsRequest(Message, api_key=32, versions="0-4", flexible="4+"):
    """Asks for configs of resources, all or by name."""

    resources: list[DescribeConfigsResource] = field()
    include_synonyms: bool = field("1+")
    include_documentation: bool = field("3+")

    class DescribeConfigsResource(Struct):
        resource_type: int8 = field()
        resource_name: str = field()
        configuration_keys: list[str] | None = field()


class DescribeConfigsResponse(Message, api_key=32, versions="0-4", flexible="4+"):
    """Lists configs with their source, and whether they are sensitive, read-only or defaults."""

    throttle_time_ms: int32 = field()
    results: list[DescribeConfigsResult] = field()

    class DescribeConfigsResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field()
        resource_name: str = field()
        configs: list[DescribeConfigsResourceResult] = field()

        class DescribeConfigsResourceResult(Struct):
            name: str = field()
            value: str | None = field()
            read_only: bool = field()
            is_default: bool = field("0")
            config_source: int8 = field("1+", default=-1)
            is_sensitive: bool = field()
            synonyms: list[DescribeConfigsSynonym] = field("1+")
            config_type: int8 = field("3+")
            documentation: str | None = field("3+")

            class DescribeConfigsSynonym(Struct):
                name: str = field()
                value: str | None = field()
                source: int8 = field()


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    """Asks to replace all configs of resources. Configs that are not named get their defaults."""

    resources: list[AlterConfigsResource] = field()
    validate_only: bool = field()

    class AlterConfigsResource(Struct):
        resource_type: int8 = field()
        resource_name: str = field()
        configs: list[AlterableConfig] = field()

        class AlterableConfig(Struct):
            name: str = field()
            value: str | None = field()


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """Says for each resource whether it was done."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field()
        resource_name: str = field()


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    """Asks to set, delete, append to or subtract from single configs (KIP-339)."""

    resources: list[AlterConfigsResource] = field()
    validate_only: bool = field()

    class AlterConfigsResource(Struct):
        resource_type: int8 = field()
        resource_name: str = field()
        configs: list[AlterableConfig] = field()

        class AlterableConfig(Struct):
            name: str = field()
            config_operation: int8 = field()
            value: str | None = field()


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """Says for each resource whether it was done."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        resource_type: int8 = field()
        resource_name: str = field()


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    """Asks which resources have configs; in version 0 only client metrics."""

    resource_types: list[int8] = field("1+")


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    """Lists resources by name and type."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    config_resources: list[ConfigResource] = field()

    class ConfigResource(Struct):
        resource_name: str = field()
        resource_type: int8 = field("1+", default=16)
