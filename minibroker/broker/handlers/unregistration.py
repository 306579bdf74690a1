"""UnregisterBroker: removes the registration of a broker that will not come back.

Behaviour: a reassignment can no longer use an unregistered broker. A running node of this process can be unregistered
too, as in Kafka: it leads nothing and is in no answer until the next start, which registers it again. A broker that is
not registered is answered with BROKER_ID_NOT_REGISTERED.

Versions: there is only 0.
"""

from __future__ import annotations

from minibroker.broker.control.registration import unregister
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from minibroker.protocol.steps import Steps


@handles(ApiKey.UNREGISTER_BROKER, durable=True)
def unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> Steps[UnregisterBrokerResponse]:
    context.authorize(ALTER_CLUSTER)
    yield from unregister(context.cluster, request.broker_id)
    return UnregisterBrokerResponse()
