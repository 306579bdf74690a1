"""Changes of a cluster that must make the fast paths for known requests forget what they know."""

from __future__ import annotations

from typing import Any

from minibroker.broker.requests.interceptors import Interceptor
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.harness import Client, Harness

Alter = IncrementalAlterConfigsRequest.AlterConfigsResource
CHANGES = ("config", "delete", "grow", "hook", "unhook", "offline", "time")


class Hook(Interceptor):
    """One that changes nothing."""


class Side:
    """A cluster and two clients. `knows` is whether connections may know the next request.

    `stored_in` is the topic that requests write to.
    """

    def __init__(self, harness: Harness, version: int, stored_in: str, *, knows: bool) -> None:
        self.harness = harness
        self.version = version
        self.knows = knows
        self.clients = [harness.client(), harness.client()]
        self._stored_in = stored_in

    def client(self, number: int) -> Client:
        """Return a client. Make it forget if it may not know the next request."""
        client = self.clients[number]
        if not self.knows:
            client.connection.template = client.connection.last_plain = None
        return client

    def config(self, setting: tuple[str, str]) -> None:
        change = Alter.AlterableConfig(name=setting[0], config_operation=0, value=setting[1])
        resource = Alter(resource_type=TOPIC_RESOURCE, resource_name=self._stored_in, configs=[change])
        self.harness.request(IncrementalAlterConfigsRequest(resources=[resource]))

    def delete(self, _: Any) -> None:
        partitions = len(self.harness.cluster.image.topics["t"].partitions)
        self.harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]))
        self.harness.create_topic("t", partitions)

    def grow(self, _: Any) -> None:
        self.harness.create_topic(f"other-{len(self.harness.cluster.image.topics)}")

    def hook(self, _: Any) -> None:
        self.harness.dispatcher.interceptors.append(Hook())

    def unhook(self, _: Any) -> None:
        self.harness.dispatcher.interceptors.clear()

    def offline(self, _: Any) -> None:
        self.harness.partition(self._stored_in).log.offline = "it is"

    def time(self, _: Any) -> None:
        self.harness.clock.advance(1000)
