"""The paths of the HTTP control for share groups."""

from __future__ import annotations

from functools import partial
from typing import Any

from minibroker.testing.broker import Broker
from minibroker.testing.control.control_answers import DeadLetter, DeliveredRecord, Delivery
from minibroker.testing.control.http_errors import WAITED
from minibroker.testing.control.models import POSITIVE
from minibroker.testing.verbs.share_verbs import ShareGroupVerbs as Verbs
from minibroker.web.routes import Routes

PATH = "/share-groups/{group}"


def add_share_routes(broker: Broker, routes: Routes) -> None:
    """Add the paths for what was delivered."""
    get = partial(routes.add_route, "GET", owner=broker.share_group)
    post = partial(routes.add_route, "POST", owner=broker.share_group)
    about = 'Set configs of the group, by Kafka\'s names: {"share.auto.offset.reset": "earliest"}.'
    post(f"{PATH}/configure", Verbs.aconfigure, "configure_share_group", about=about)
    get(f"{PATH}/deliveries", Verbs.deliveries, "list_deliveries", answer=list[Delivery])
    post(f"{PATH}/expire-locks", Verbs.expire_locks, "expire_locks", answer="LockedRecords.records")
    waits: list[tuple[str, Any, str, Any]] = [
        ("wait-until-assigned", Verbs.await_until_assigned, "AssignmentWait", "AssignedPartitions.members"),
        ("wait-until-settled", Verbs.await_until_settled, "SettledWait", "Offset.offset"),
        ("expect-redelivered", Verbs.aexpect_redelivered, "Redelivery", list[DeliveredRecord]),
        ("expect-dead-letters", Verbs.aexpect_dead_letters, "DeadLetterWait", list[DeadLetter]),
    ]
    wait = partial(post, errors=WAITED, kinds={"members": POSITIVE})
    for path, verb, body, answer in waits:
        wait(f"{PATH}/{path}", verb, path.replace("-", "_"), body=body, answer=answer)
    get(f"{PATH}/dead-letters", Verbs.dead_letters, "list_dead_letters", answer=list[DeadLetter])
    collect = partial(post, body="DeadLetterQueue", answer="TopicName.topic")
    collect(f"{PATH}/collect-dead-letters", Verbs.acollect_dead_letters, "collect_dead_letters")
