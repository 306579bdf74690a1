"""Whether a fault applies to a request, and to which parts of its answer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from minibroker.broker.requests.interceptors import Call
from minibroker.broker.security.logins import Login
from minibroker.broker.security.principals import USER, Principal
from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.testing.faults.rules import Rule
from minibroker.testing.seen.error_places import ErrorPlace, find_levels_with_errors
from minibroker.testing.seen.journal import get_mechanism
from minibroker.testing.seen.subjects import GetTopicName, NamedSubjects, find_subjects

if TYPE_CHECKING:
    from minibroker.broker.share.share_partitions import ShareSession


def make_topic_name_getter(call: Call) -> GetTopicName:
    """Return a function that gives the broker's name of a topic id, or None."""
    topics = call.context.cluster.image.topics_by_id

    def get_topic_name(topic_id: bytes) -> str | None:
        topic = topics.get(topic_id)
        return None if topic is None else topic.name

    return get_topic_name


class RequestForFaults:
    """A request and its subjects, which are read only if a rule asks for them."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @cached_property
    def subjects(self) -> NamedSubjects:
        """Return what the request names: topics, groups, transactional ids; of a fetch, also its session's topics."""
        found = find_subjects(self.call.request, make_topic_name_getter(self.call))
        for topic, partition in list_session_partitions(self.call):
            found.topics.setdefault(topic, set()).add(partition)
        return found

    def matches_rule(self, rule: Rule) -> bool:
        """Return whether all of the rule's conditions match the request; `where` is not called."""
        context = self.call.context
        return (
            rule.authentication is None
            and (not rule.api_keys or self.call.api_key in rule.api_keys)
            and (rule.versions is None or context.version in rule.versions)
            and (rule.node is None or context.node.node_id == rule.node)
            and (rule.client_id is None or context.client_id == rule.client_id)
            and (rule.user is None or context.connection.principal == Principal(USER, rule.user))
            and (rule.mechanism is None or get_mechanism(self.call) == rule.mechanism)
            and self._matches_named_subjects(rule)
            and (rule.level is None or rule.level in find_levels_with_errors(get_response_class(self.call.api_key)))
        )

    def _matches_named_subjects(self, rule: Rule) -> bool:
        """Return whether the request names the rule's topic, partition, group and transactional id."""
        if rule.topic is not None:
            partitions = self.subjects.topics.get(rule.topic)
            if partitions is None or (rule.partition is not None and partitions and rule.partition not in partitions):
                return False
        elif rule.partition is not None and not any(
            rule.partition in partitions for partitions in self.subjects.topics.values()
        ):
            return False
        return (rule.group is None or rule.group in self.subjects.groups) and (
            rule.transactional_id is None or rule.transactional_id in self.subjects.transactional_ids
        )


def matches_login(rule: Rule, login: Login) -> bool:
    """Return whether the rule is about logins, and applies to this one at this point."""
    return (
        rule.authentication is not None
        and (rule.authentication == "wrong-mechanism") is (login.user is None)
        and (rule.node is None or login.node_id == rule.node)
        and (rule.client_id is None or login.client_id == rule.client_id)
        and (rule.user is None or login.user == rule.user)
        and (rule.mechanism is None or login.mechanism == rule.mechanism)
    )


def list_session_partitions(call: Call) -> list[tuple[str, int]]:
    """Return the partitions of the client's session, if the request is a Fetch or ShareFetch within one (KIP-227)."""
    name_of = make_topic_name_getter(call)
    named = (
        (name_of(topic) if isinstance(topic, bytes) else topic, index)
        for topic, index in _iterate_session_partitions(call)
    )
    return [(topic, index) for topic, index in named if topic is not None]


def _iterate_session_partitions(call: Call) -> Iterable[tuple[bytes | str, int]]:
    """Return the partitions of the request's fetch session, by topic id or name; none without a session."""
    request: Any = call.request
    if call.api_key == ApiKey.SHARE_FETCH:
        from minibroker.broker.share.share_partitions import FIRST_EPOCH

        session = find_share_session(call) if request.share_session_epoch > FIRST_EPOCH else None
        return () if session is None else session.wanted
    session_id = getattr(request, "session_id", 0)
    return call.context.node.sessions.list_partitions(session_id) if session_id else ()


def find_share_session(call: Call) -> ShareSession | None:
    """Return the share session of the sender of a ShareFetch, if there is one."""
    from minibroker.broker.share.share_partitions import SessionKey

    request: Any = call.request
    key = SessionKey(call.context.node.node_id, request.group_id or "", request.member_id or "")
    return call.context.cluster.shares.sessions.get(key)


def applies_to_error_place(rule: Rule, error_place: ErrorPlace) -> bool:
    """Return whether the rule applies to this place in an answer."""
    if rule.topic is not None and error_place.level != "top" and error_place.topic != rule.topic:
        return False
    return rule.partition is None or error_place.level != "partition" or error_place.partition == rule.partition
