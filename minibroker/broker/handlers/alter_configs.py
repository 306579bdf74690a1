"""AlterConfigs: all settings of topics and brokers at once, as clients set them before IncrementalAlterConfigs.

Behaviour: what a request names is set, and everything else that was set on the resource is removed. The rest is as in
IncrementalAlterConfigs, whose change this is made into: see `incremental_configs`.

Versions: 1 and 2 say the same as 0; 2 has flexible fields.

Not implemented: what IncrementalAlterConfigs does not do either. The levels of loggers are its alone, as in Kafka.
"""

from __future__ import annotations

from functools import partial

from minibroker.broker.configs.config_changes import ChangeKind
from minibroker.broker.handlers.incremental_configs import altered
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from minibroker.protocol.steps import Steps, each

Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Answer = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(ApiKey.ALTER_CONFIGS, durable=True)
def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> Steps[AlterConfigsResponse]:
    changes = yield from each(partial(_changed, context), request.resources)
    answers = yield from altered(context, changes, validate_only=request.validate_only, loggers=False)
    return AlterConfigsResponse(
        responses=[
            Answer(
                error_code=answer.error_code,
                error_message=answer.error_message,
                resource_type=answer.resource_type,
                resource_name=answer.resource_name,
            )
            for answer in answers
        ]
    )


def _changed(context: RequestContext, resource: AlterConfigsRequest.AlterConfigsResource) -> Changed:
    """The change that leaves a resource with what is named and nothing else."""
    named = {config.name for config in resource.configs}
    current = context.cluster.image.configs.get((resource.resource_type, resource.resource_name), {})
    lines = [
        Changed.AlterableConfig(name=config.name, config_operation=ChangeKind.SET, value=config.value)
        for config in resource.configs
    ]
    lines += [
        Changed.AlterableConfig(name=name, config_operation=ChangeKind.DELETE, value=None)
        for name in current
        if name not in named
    ]
    return Changed(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=lines)
