"""The paths of the HTTP control for share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.testing.broker import Broker
from minibroker.testing.control.control_answers import DeadLetter, DeliveredRecord, Delivery
from minibroker.testing.control.http_errors import WAITED
from minibroker.testing.control.models import POSITIVE
from minibroker.testing.share_verbs import ShareGroupVerbs as Verbs
from minibroker.web.routes import Routes

PATH = "/share-groups/{group}"


def share_routes(broker: Broker, routes: Routes) -> None:
    """Add the paths for what was delivered."""

    def on(method: str, path: str, verb: Callable[..., Any], name: str, **given: Any) -> None:
        routes.on(method, f"{PATH}/{path}", verb, name, owner=broker.share_group, **given)

    members, letters = {"members": POSITIVE}, list[DeadLetter]
    about = 'Set configs of the group, by Kafka\'s names: {"share.auto.offset.reset": "earliest"}.'
    on("POST", "configure", Verbs.aconfigure, "configure_share_group", about=about)
    on("GET", "deliveries", Verbs.deliveries, "list_deliveries", answer=list[Delivery])
    on("POST", "expire-locks", Verbs.expire_locks, "expire_locks", answer="LockedRecords.records")
    for path, verb, body, answer in (
        ("wait-until-assigned", Verbs.await_until_assigned, "AssignmentWait", "AssignedPartitions.members"),
        ("wait-until-settled", Verbs.await_until_settled, "SettledWait", "Offset.offset"),
        ("expect-redelivered", Verbs.aexpect_redelivered, "Redelivery", list[DeliveredRecord]),
        ("expect-dead-letters", Verbs.aexpect_dead_letters, "DeadLetterWait", letters),
    ):
        waited: dict[str, Any] = {"answer": answer, "errors": WAITED, "kinds": members}
        on("POST", path, verb, path.replace("-", "_"), body=body, **waited)
    topic: dict[str, Any] = {"body": "DeadLetterQueue", "answer": "TopicName.topic"}
    on("POST", "collect-dead-letters", Verbs.acollect_dead_letters, "collect_dead_letters", **topic)
    on("GET", "dead-letters", Verbs.dead_letters, "list_dead_letters", answer=letters)
