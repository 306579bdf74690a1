"""UnregisterBroker: a broker that will not come back is forgotten.

Behaviour: a broker that is away is registered no longer, and no reassignment can name it. A node of this process that
is forgotten leads nothing any more and is in no answer until the next start, which registers it again: so it is with
a broker of Kafka's. A broker that is not registered is BROKER_ID_NOT_REGISTERED.

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
