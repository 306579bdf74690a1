"""UnregisterBroker: a broker that will not come back is forgotten.

Behaviour: a broker that is away is registered no longer, and no reassignment can name it. A node of this process that
is forgotten leads nothing any more and is in no answer until the next start, which registers it again: so it is with
a broker of Kafka's. A broker that is not registered is BROKER_ID_NOT_REGISTERED.

Versions: there is only 0.
"""

from __future__ import annotations

from minibroker.broker.control.registration import unregister
from minibroker.broker.requests.dispatch import Context, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from minibroker.protocol.steps import Steps


@handles(ApiKey.UNREGISTER_BROKER, "0", durable=True)
def unregister_broker(context: Context, request: UnregisterBrokerRequest) -> Steps[UnregisterBrokerResponse]:
    try:
        yield from unregister(context.cluster, request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()
