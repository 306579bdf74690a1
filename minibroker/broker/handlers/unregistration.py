"""UnregisterBroker and UnregisterController: remove the registration of a node that will not come back.

Behaviour: a reassignment can no longer use an unregistered broker. A running node of this process can be unregistered
too, as in Kafka: it leads nothing and is in no answer until the next start, which registers it again. A broker that is
not registered is answered with BROKER_ID_NOT_REGISTERED. The controller of this process does not register, so that
every controller is answered with CONTROLLER_ID_NOT_REGISTERED, or UNSUPPORTED_VERSION before metadata.version 32.

Versions: there is only 0.
"""

from __future__ import annotations

from minibroker.broker.control.registration import unregister_broker_in_steps
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.features import METADATA_VERSION
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, make_denial_text
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

FIRST_WITH_CONTROLLERS = 32  # 4.4-IV1, the first with a record for it


@handles(ApiKey.UNREGISTER_BROKER, durable=True)
async def unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.UNREGISTER_BROKER, ALTER_CLUSTER))
    await run_in_slices(unregister_broker_in_steps(context.cluster, request.broker_id))
    return UnregisterBrokerResponse()


@handles(ApiKey.UNREGISTER_CONTROLLER)
def unregister_controller(
    context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.UNREGISTER_CONTROLLER, ALTER_CLUSTER))
    if context.cluster.image.features.get(METADATA_VERSION, 0) < FIRST_WITH_CONTROLLERS:
        message = "The current MetadataVersion is too old to support controller unregistration."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    message = f"Controller ID {request.controller_id} is not currently registered."
    raise KafkaError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)
