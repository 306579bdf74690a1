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
from minibroker.broker.handlers.incremental_configs import AlteredResource, change_configs_of_resources
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, run_steps_of_each_item, split_into_portions

ChangedResource = IncrementalAlterConfigsRequest.AlterConfigsResource
ResourceAnswer = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(ApiKey.ALTER_CONFIGS, durable=True)
async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    changes = await in_slices(run_steps_of_each_item(partial(_find_changes_of_resource, context), request.resources))
    answers = await in_slices(
        change_configs_of_resources(context, changes, validate_only=request.validate_only, may_change_loggers=False)
    )
    return AlterConfigsResponse(responses=await in_slices(apply_to_items_in_steps(_make_answer, answers)))


def _find_changes_of_resource(
    context: RequestContext, resource: AlterConfigsRequest.AlterConfigsResource
) -> Steps[ChangedResource]:
    """Return the change after which a resource has exactly the settings in the request."""
    current = context.cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    removed = dict.fromkeys(current)
    changes: list[ChangedResource.AlterableConfig] = []
    for configs in split_into_portions(resource.configs):
        for config in configs:
            removed.pop(config.name, None)
            changes.append(_make_change(config.name, ChangeKind.SET, config.value))
        yield
    changes += [_make_change(name, ChangeKind.DELETE, None) for name in removed]
    return ChangedResource(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=changes)


def _make_change(name: str, kind: ChangeKind, value: str | None) -> ChangedResource.AlterableConfig:
    return ChangedResource.AlterableConfig(name=name, config_operation=kind, value=value)


def _make_answer(answer: AlteredResource) -> ResourceAnswer:
    return ResourceAnswer(
        error_code=answer.error_code,
        error_message=answer.error_message,
        resource_type=answer.resource_type,
        resource_name=answer.resource_name,
    )
