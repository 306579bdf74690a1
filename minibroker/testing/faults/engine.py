"""The interceptor that applies faults to requests. It is installed only while there are rules.

`rules` has the grammar, and `fault_matching` decides whether a rule applies; `Fault` is a test's handle to one.
"""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from minibroker.broker.delayed_operations import Promise, sleep
from minibroker.broker.monitoring.request_statistics import RequestStatistics
from minibroker.broker.network.output_items import BYTES, CLOSE
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.security.logins import Login, Verdict
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.quantities import Duration
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.pausing import PausedNodes
from minibroker.testing.faults.error_answers import (
    add_errors_of_rule,
    corrupt_batches,
    refuse_request,
    remove_partitions_from_request,
    remove_partitions_from_share_request,
    remove_wait_of_fetch,
    set_errors,
    set_throttle,
)
from minibroker.testing.faults.fault_matching import RequestForFaults, make_topic_name_getter, matches_login
from minibroker.testing.faults.rules import Rule, load_rules, parse_rule
from minibroker.testing.loops import BrokerLoop, blocking, make_coroutine_of_blocking_verb, shorten_tracebacks
from minibroker.testing.seen.journal import Journal
from minibroker.testing.seen.waiting import DEFAULT_TIMEOUT, format_count_with_were

if TYPE_CHECKING:
    from minibroker.testing.seen.hosting import InterceptedHost
    from minibroker.testing.seen.waiting import ConditionWatch

Words = ParamSpec("Words")

log = logging.getLogger("minibroker.faults")

_CORRELATION_ID = Struct(">i")
_CORRELATION_POSITION = 4
OF_SHARE_SESSIONS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
FAR = 1 << 30  # so that the wrong correlation id is not that of the client's next requests
# The interceptors that see a request before a fault answers it: those that watch, and paused nodes.
BEFORE_FAULTS = (RequestStatistics, Journal, PausedNodes)


@hide_names("loop", "matches_request", "count_hit_and_decide", "failure")
class Fault:
    """An active rule. `matches` counts the requests that it applies to, `hits` those that it struck."""

    def __init__(self, faults: Faults, rule: Rule, number: int) -> None:
        self.rule = rule
        self.number = number
        self.matches = 0
        self.hits = 0
        self.failure: Exception | None = None  # what `where` raised
        self._faults = faults
        self._random = random.Random(rule.seed)

    def __repr__(self) -> str:
        failed = "" if self.failure is None else f"; its `where` raised {self.failure!r}"
        return f"<fault {self.number}: {self.rule} ({self.hits} hits of {self.matches} matches{failed})>"

    @property
    def loop(self) -> BrokerLoop:
        """Return the broker's loop. Raises NotRunning."""
        return self._faults.broker.loop

    @blocking
    async def wait_for_hits(self, hits: int = 1, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait until the fault has this many hits. Raises Expired, and what its `where` raised."""

        def has_enough_hits() -> bool:
            if self.failure is not None:
                raise self.failure
            return self.hits >= hits

        await self._faults.watch.wait_until(
            has_enough_hits, timeout, lambda: f"{format_count_with_were(hits, 'hit')} expected of {self!r}"
        )

    await_for_hits = make_coroutine_of_blocking_verb(wait_for_hits)

    @property
    def held(self) -> int:
        """Return how many requests it keeps silent, of clients that are still connected."""
        return self._faults.count_held(self)

    def remove(self) -> None:
        """End the fault. Clients that it keeps waiting are disconnected."""
        self._faults.remove(self)

    def matches_request(self, request: Message) -> bool:
        """Return whether `where` holds. If it raises, the request passes, and `wait_for_hits` raises the same."""
        if self.rule.where is None:
            return True
        try:
            return bool(self.rule.where(request))
        except Exception as error:
            self.failure = error
            log.exception("the `where` of %r failed", self)
            self._faults.watch.check_conditions_soon()
            return False

    def count_hit_and_decide(self) -> bool:
        """Count a match; return whether the fault strikes it."""
        self.matches += 1
        rule = self.rule
        if rule.nth is not None and self.matches != rule.nth:
            return False
        if self.hits >= rule.maximum_hits:
            return False
        if rule.probability is not None and self._random.random() >= rule.probability:
            return False
        self.hits += 1
        return True


def _apply_signature_of(
    rule: Callable[Words, Rule],
) -> Callable[[Callable[..., Fault]], Callable[Concatenate[Faults, Words], Fault]]:
    """Give a method the signature of `rule`, for type checkers, editors and `help`."""

    def call_with_signature(method: Callable[..., Fault]) -> Callable[Concatenate[Faults, Words], Fault]:
        owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        words = inspect.signature(rule).parameters.values()
        method.__signature__ = inspect.Signature([owner, *words], return_annotation="Fault")  # type: ignore[attr-defined]
        return method

    return call_with_signature


@hide_names("broker", "watch", "count_held", "has_fault_struck_call", *vars(Interceptor))
class Faults(Interceptor):
    """The faults of a broker."""

    def __init__(self, broker: InterceptedHost, watch: ConditionWatch, journal: Journal) -> None:
        self.broker = broker
        self.watch = watch
        self._journal = journal
        self._faults: list[Fault] = []
        self._number = 0
        self._struck: dict[Call, list[Fault]] = {}
        self._errors: dict[Call, list[tuple[Rule, Message]]] = {}
        self._put_back: dict[Call, list[Callable[[], None]]] = {}
        self._logins: dict[object, list[Fault]] = {}  # whose answer has not been made
        self._held: dict[Fault, set[Call]] = {}  # that get no answer
        broker.reset_callbacks.append(self._clear_faults)

    # --- for tests --------------------------------------------------------------------------------

    @_apply_signature_of(Rule)
    @shorten_tracebacks
    def add(self, **words: Any) -> Fault:
        """Add a fault: add(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2).

        The arguments are the fields of `Rule`; None stands for an argument that is not given. Raises FaultError.
        """
        return self._add_fault(parse_rule(words, in_python=True))

    @shorten_tracebacks
    def add_all(self, mappings: Iterable[Any]) -> list[Fault]:
        """Add faults given as mappings. Raises FaultError, and then adds none."""
        return [self._add_fault(rule) for rule in [parse_rule(words) for words in mappings]]

    @shorten_tracebacks
    def load(self, path: str | Path) -> list[Fault]:
        """Add the faults of a YAML file, a list of mappings. Raises FaultError, OSError."""
        return [self._add_fault(rule) for rule in load_rules(Path(path))]

    def all(self) -> list[Fault]:
        """Return the faults, in the order in which requests meet them."""
        return self.broker.call_on_loop(lambda: list(self._faults))

    def remove(self, fault: Fault) -> None:
        """Remove a fault, if it was not removed yet."""
        self.broker.call_on_loop(lambda: self._remove_fault(fault))

    def count_held(self, fault: Fault) -> int:
        """Return how many requests a fault keeps waiting."""
        return self.broker.call_on_loop(lambda: len(self._held.get(fault, ())))

    def clear(self) -> None:
        """Remove all faults."""
        self.broker.call_on_loop(self._clear_faults)

    # --- on the loop ------------------------------------------------------------------------------

    def has_fault_struck_call(self, call: Call) -> bool:
        """Return whether a fault has struck a request that is not answered yet, and may have changed it."""
        return call in self._struck

    def _add_fault(self, rule: Rule) -> Fault:
        """Add a fault with this rule, on the loop; return it."""
        self._number += 1
        fault = Fault(self, rule, self._number)
        self.broker.call_on_loop(lambda: self._insert_fault(fault))
        return fault

    def _insert_fault(self, fault: Fault) -> None:
        """Append a fault; the first one begins to intercept requests. Call it on the loop."""
        if not self._faults:
            interceptors = self.broker.interceptors
            before = [at for at, each in enumerate(interceptors) if isinstance(each, BEFORE_FAULTS)]
            interceptors.insert(1 + max(before, default=-1), self)
        self._faults.append(fault)
        self.broker.notify_event_listeners("fault", f"add fault {fault.number}: {fault.rule}")

    def _remove_fault(self, fault: Fault) -> None:
        """Remove a fault, and disconnect the clients that it keeps waiting. Call it on the loop."""
        if fault in self._faults:
            self._faults.remove(fault)
            self.broker.notify_event_listeners("fault", f"remove fault {fault.number}")
            if not self._faults:
                self.broker.interceptors.remove(self)
            for call in list(self._held.pop(fault, ())):
                call.context.connection.close_after_failure()

    def _clear_faults(self) -> None:
        for fault in list(self._faults):
            self._remove_fault(fault)

    # --- as an interceptor ------------------------------------------------------------------------

    def before_request(self, call: Call) -> Coroutine[Any, Any, Message | None] | None:
        """Count the faults that strike a request. Return the coroutine that applies them, None without any."""
        matching = RequestForFaults(call)
        struck = [
            fault
            for fault in self._faults
            if matching.matches_rule(fault.rule)
            and fault.matches_request(call.request)
            and fault.count_hit_and_decide()
        ]
        if not struck:
            return None
        self._struck[call] = struck
        self._record_faults_in_journal(call, struck)
        self.watch.check_conditions_soon()  # which does not see requests that are held here
        return self._apply_faults_to_request(call, struck)

    def _record_faults_in_journal(self, call: Call, matching_faults: list[Fault]) -> None:
        """Name the faults that strike a request in its journal entry."""
        exchange = self._journal.get_exchange_of_call(call)
        if exchange is not None:
            exchange.faults = tuple(str(fault.rule) for fault in matching_faults)

    async def _apply_faults_to_request(self, call: Call, matching_faults: list[Fault]) -> Message | None:
        """Delay; then disconnect, keep silent or return an error, as the first fault that does one of these says.

        Raises UnanswerableRequest.
        """
        delay_ms = sum(fault.rule.delay_ms for fault in matching_faults)
        if delay_ms:
            await sleep(self.broker.moving_clock, delay_ms)
        for fault in matching_faults:
            rule = fault.rule
            if rule.close is not None:
                if rule.close != "before":
                    await call.run_hooks_and_handler()
                raise UnanswerableRequest(f"a fault: {rule}")
            if rule.answer == "silence":
                await self._hold_until_client_leaves(call, fault)
            if rule.code is not None and rule.when != "after":
                answer = self._make_refusal(call, rule)
                if answer is not None:
                    return answer
        return None

    async def _hold_until_client_leaves(self, call: Call, fault: Fault) -> None:
        """Wait until the client leaves, or the fault is removed, which disconnects the client."""
        self._held.setdefault(fault, set()).add(call)
        try:
            if fault.rule.when == "after":
                await call.run_hooks_and_handler()
            await Promise[None]()
        finally:
            self._held.get(fault, set()).discard(call)

    def _make_refusal(self, call: Call, rule: Rule) -> Message | None:
        """Return the answer if the whole request is refused; else keep the errors for the answer to the rest of it."""
        if call.api_key == ApiKey.FETCH and rule.level != "top":
            remove_wait_of_fetch(call.request)
            self._errors.setdefault(call, []).append((rule, call.request))
            return None
        if call.api_key == ApiKey.PRODUCE and call.request.acks == 0:
            raise UnanswerableRequest(f"a fault of a Produce with acks=0: {rule}")
        answer = refuse_request(call, rule)
        if call.api_key in OF_SHARE_SESSIONS and rule.level != "top":
            if call.api_key == ApiKey.SHARE_FETCH:
                remove_wait_of_fetch(call.request)
            self._put_back.setdefault(call, []).append(remove_partitions_from_share_request(call, rule))
            self._errors.setdefault(call, []).append((rule, answer))
            return None
        if rule.level == "top" or not remove_partitions_from_request(call.request, rule, make_topic_name_getter(call)):
            return answer
        self._errors.setdefault(call, []).append((rule, answer))
        return None

    def judge_login(self, login: Login) -> Verdict | None:
        """Count the faults that strike a login. Return what they do to it, None without any."""
        struck = [fault for fault in self._faults if matches_login(fault.rule, login) and fault.count_hit_and_decide()]
        if not struck:
            return None
        self._logins[login.connection] = struck
        self.watch.check_conditions_soon()
        rules = [fault.rule for fault in struck]
        sessions = [rule.session_ms for rule in rules if rule.authentication == "expire"]
        return Verdict(
            any(rule.authentication in ("refuse", "wrong-mechanism") for rule in rules),
            sum(rule.delay_ms for rule in rules),
            min(sessions, default=None),
        )

    def alter_response(self, call: Call, response: Message) -> Message:
        """Set the errors, damaged batches and throttle times of the faults that have struck the request."""
        if call.api_key in LOGIN and (struck := self._logins.pop(call.context.connection, None)) is not None:
            self._record_faults_in_journal(call, struck)
        self._restore_share_partitions(call)
        for rule, errors in self._errors.pop(call, ()):
            if call.api_key == ApiKey.FETCH:
                set_errors(call, rule, response)
            else:
                add_errors_of_rule(response, errors, rule, make_topic_name_getter(call))
        for fault in self._struck.get(call, ()):
            rule = fault.rule
            if rule.code is not None and rule.when == "after":
                set_errors(call, rule, response)
            if rule.corrupt is not None:
                corrupt_batches(call, rule, response)
            if rule.throttle_ms:
                set_throttle(rule, response)
        return response

    def alter_frame(self, call: Call, items: list[Any]) -> list[Any]:
        """Cut the answer in half, or change its correlation id, if a fault says so."""
        for fault in self._struck.get(call, ()):
            if fault.rule.answer == "half":
                data = _join_answer_items(items)
                return [data[: len(data) // 2], CLOSE]
            if fault.rule.answer == "wrong-correlation-id":
                begin = bytearray(items[0])  # the first item holds the whole header, as bytes of any type
                _CORRELATION_ID.pack_into(begin, _CORRELATION_POSITION, call.correlation_id ^ FAR)
                items[0] = bytes(begin)
        return items

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """Forget the request."""
        self._forget_call(call)

    def on_lost(self, call: Call) -> None:
        """Forget the request."""
        self._forget_call(call)

    def _forget_call(self, call: Call) -> None:
        """Forget a request, and give its share session its partitions back."""
        self._logins.pop(call.context.connection, None)
        self._struck.pop(call, None)
        self._errors.pop(call, None)
        self._restore_share_partitions(call)

    def _restore_share_partitions(self, call: Call) -> None:
        """Give the share session of a request its partitions back."""
        for put_back in self._put_back.pop(call, ()):
            put_back()


def _join_answer_items(items: list[Any]) -> bytes:
    return b"".join(item if item.__class__ in BYTES else item.read() for item in items)
