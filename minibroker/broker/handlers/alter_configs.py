"""AlterConfigs: replaces all settings of a resource. Clients used it before IncrementalAlterConfigs existed.

Behaviour: the settings in the request are set; all other settings of the resource are removed. The request is turned
into the changes of an IncrementalAlterConfigs: see `incremental_configs`. Levels of loggers can only be changed by
that one, as in Kafka.

Versions: 1 and 2 are like 0; 2 has flexible fields.
"""

from __future__ import annotations

from functools import partial

from minibroker.broker.configs.config_changes import ChangeKind
from minibroker.broker.delayed_operations import in_slices
from minibroker.broker.handlers.incremental_configs import change_configs_of_resources
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from minibroker.protocol.steps import apply_to_items_in_steps

ChangedResource = IncrementalAlterConfigsRequest.AlterConfigsResource
ResourceAnswer = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(ApiKey.ALTER_CONFIGS, durable=True)
async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = await in_slices(apply_to_items_in_steps(partial(_find_changes_of_resource, context), request.resources))
    answers = await in_slices(
        change_configs_of_resources(context, changes, validate_only=request.validate_only, may_change_loggers=False)
    )
    return AlterConfigsResponse(
        responses=[
            ResourceAnswer(
                error_code=answer.error_code,
                error_message=answer.error_message,
                resource_type=answer.resource_type,
                resource_name=answer.resource_name,
            )
            for answer in answers
        ]
    )


def _find_changes_of_resource(
    context: RequestContext, resource: AlterConfigsRequest.AlterConfigsResource
) -> ChangedResource:
    """Return the change after which a resource has exactly the settings in the request."""
    named = {config.name for config in resource.configs}
    current = context.cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    lines = [
        ChangedResource.AlterableConfig(name=config.name, config_operation=ChangeKind.SET, value=config.value)
        for config in resource.configs
    ]
    lines += [
        ChangedResource.AlterableConfig(name=name, config_operation=ChangeKind.DELETE, value=None)
        for name in current
        if name not in named
    ]
    return ChangedResource(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=lines)
