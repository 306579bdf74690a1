"""`Broker`, the object that tests use: a broker, its clock, and the methods for tests."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from minibroker.broker.configs.client_metrics import validate_client_metrics_overrides
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE
from minibroker.quantities import Duration, format_span, parse_milliseconds
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.embedded_broker import EmbeddedBroker
from minibroker.testing.loops import (
    BrokerLoop,
    blocking,
    immediate,
    make_coroutine_of_blocking_verb,
    shorten_tracebacks,
)
from minibroker.testing.moving_clock import JUMPS, MovingClock
from minibroker.testing.verbs.group_verbs import GroupVerbs
from minibroker.testing.verbs.node_verbs import NodeVerbs
from minibroker.testing.verbs.record_verbs import RecordVerbs
from minibroker.testing.verbs.security_verbs import AclVerbs, QuotaVerbs, Users, make_client_config
from minibroker.testing.verbs.token_verbs import Token, TokenVerbs, make_config_with_token

if TYPE_CHECKING:
    from minibroker.broker.client_telemetry import ClientMetric
    from minibroker.testing.embedded.issuer import Issuer
    from minibroker.testing.embedded.registry_verbs import RegistryRequest
    from minibroker.testing.verbs.share_verbs import ShareGroupVerbs

INNER = (  # for the test kit itself
    *("loop", "call_on_loop", "running", "moving_clock", "ports", "is_stopped", "emulated", "watch", "share_history"),
    *(
        "interceptors",
        "add_interceptor_first",
        "measured",
        "set_measurements",
        "reset_callbacks",
        "kill_and_reserve_ports",
        "registry_requests",
    ),
    *("defaults", "has_registry", "first_records", "first_cluster_id", "event_listeners", "notify_event_listeners"),
)
SETTLE_SECONDS = 10.0  # how long to wait after a move for other threads: compaction, removal of files


@hide_names("loop")
class TestClock:
    """The broker's time. Clients keep their own, even in this process.

    It drives retention, compaction, session, rebalance and transaction timeouts, the expiry of offsets and producers,
    waiting fetches, idle connections, and the timestamps that the broker sets (log append time). It also runs, and can
    be advanced, while the broker is down after a `kill`.
    """

    __test__ = False  # tells pytest that this is not a test

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    @property
    def loop(self) -> BrokerLoop:
        """Return the broker's loop. Raises NotRunning."""
        return self._broker.loop

    @immediate
    def now_ms(self) -> int:
        """Return the wall clock's time, in ms since 1970."""
        return self._broker.moving_clock.wall_ms()

    @blocking
    async def advance(self, by: Duration) -> None:
        """Advance by seconds, "7 days", "1.5 s" or a timedelta; return once everything that became due is done.

        Raises ValueError for what is no duration.
        """
        clock, by_ms = self._broker.moving_clock, parse_milliseconds(by)
        span = format_span(round(by_ms))
        self._broker.notify_event_listeners("clock", f"advance {span if span[0].isdigit() else f'1 {span}'}")
        for _ in range(JUMPS):
            clock.move_ahead(by_ms / JUMPS)
            await asyncio.sleep(0)
        await self._wait_for_threads(clock)

    aadvance = make_coroutine_of_blocking_verb(advance)

    async def _wait_for_threads(self, clock: MovingClock) -> None:
        """Wait until no other thread works for the broker."""
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            clock.move_ahead(0)
            await asyncio.sleep(0)
            cleaning = self._broker.is_running and self._broker.running.is_log_cleaner_busy
            if not clock.is_busy and not cleaning:
                return
            await asyncio.sleep(0.001)

    @immediate
    def freeze(self) -> None:
        """Stop the clock; only `advance` moves it."""
        self._broker.moving_clock.freeze()
        self._broker.notify_event_listeners("clock", "freeze")

    @immediate
    def unfreeze(self) -> None:
        """Let the clock run again."""
        self._broker.moving_clock.unfreeze()
        self._broker.notify_event_listeners("clock", "unfreeze")

    @property
    def frozen(self) -> bool:
        """Return whether the clock is stopped."""
        return self.loop.call_on_loop(lambda: self._broker.moving_clock.frozen)


@hide_names(*INNER)
class Broker(RecordVerbs, GroupVerbs, NodeVerbs):
    """A broker on a real socket for `with` (a thread of its own) or `async with` (the caller's event loop)."""

    @cached_property
    def clock(self) -> TestClock:
        """Return the broker's time: `advance` it, `freeze` it."""
        return TestClock(self)

    @cached_property
    def users(self) -> Users:
        """Return the users who can log in: `add` one, `remove` one."""
        return Users(self)

    @cached_property
    def acls(self) -> AclVerbs:
        """Return the ACLs: `allow` and `deny`."""
        _ = self.security
        return AclVerbs(self)

    @cached_property
    def quotas(self) -> QuotaVerbs:
        """Return the quotas: `set` them."""
        return QuotaVerbs(self)

    @property
    def explorer_url(self) -> str:
        """Return the address of the explorer's page. Raises RuntimeError unless the broker was made with it."""
        if self._explorer is None or not self._explorer.url:
            raise RuntimeError("there is no explorer: it needs Broker(explorer=True), and a broker that was started")
        return self._explorer.url

    @property
    def registry_url(self) -> str:
        """Return the URL of the schema registry. Raises RuntimeError for a broker that was made without one."""
        return self.registry.url

    @property
    def has_registry(self) -> bool:
        """Return whether the broker was made with a schema registry."""
        return self._registry is not None

    def registry_requests(self) -> list[RegistryRequest]:
        """Return the requests to the schema registry, none without one. Raises NotRunning."""
        return [] if self._registry is None else self._registry.requests()

    @property
    def issuer(self) -> Issuer:
        """Return the issuer of OAuth tokens: `token` makes one. Raises RuntimeError without SASL."""
        issuer = self.security.issuer
        if issuer is None:
            raise RuntimeError(f"with {self.security.protocol} there is no issuer: nobody logs in")
        return issuer

    @cached_property
    def tokens(self) -> TokenVerbs:
        """Return the delegation tokens: `create`, `renew` and `expire` them."""
        _ = self.security
        return TokenVerbs(self)

    @shorten_tracebacks
    def client_config(
        self, library: str, *, user: str | None = None, mechanism: str | None = None, token: Token | None = None
    ) -> Any:
        """Return what a client needs to connect, as its library takes it: addresses, certificates, name and password.

        `library` is "confluent", "aiokafka", "kafka-python", "java", "franz-go", "kafkajs" or "librdkafka.properties".
        A user that does not exist is added. `mechanism` is SCRAM-SHA-512 unless it is given. With a delegation `token`,
        the client logs in as its owner; only "java" and "franz-go" can. Raises ValueError.
        """
        if token is not None:
            return make_config_with_token(self, library, token, mechanism)
        return make_client_config(self, library, user, mechanism)

    def share_group(self, group: str) -> ShareGroupVerbs:
        """Return the methods for a share group (KIP-932), which need not exist yet."""
        from minibroker.testing.verbs.share_verbs import ShareGroupVerbs

        return ShareGroupVerbs(self, group)

    @immediate
    def collect_client_metrics(self, *names: str, interval: Duration = "1 s") -> None:
        """Ask clients that connect from now on for their metrics: those whose names begin with one of `names`, or all.

        `interval` is how often they push. It is from 100 ms to an hour. Raises KafkaError.
        """
        texts = {"metrics": ",".join(names or ("*",)), "interval.ms": str(round(parse_milliseconds(interval)))}
        controller = self.running.cluster.controller
        controller.change_config(CLIENT_METRICS_RESOURCE, "testing", dict(validate_client_metrics_overrides(texts)))
        controller.change_config(BROKER_RESOURCE, "", {"client.telemetry.enable": "true"})

    @immediate
    def client_metrics(self, client_id: str | None = None) -> list[ClientMetric]:
        """Return the metrics that clients with this id, or all, have pushed; those of clients that have left, too.

        Clients push what `collect_client_metrics` asks for, and once more when they close.
        """
        return list(self.running.cluster.telemetry.iterate_pushed_client_metrics(client_id))

    @immediate
    def use_certificate(self, kind: str) -> None:
        """Present another certificate to new clients.

        `kind` is "good", "expired", "other host" or "unknown authority". Raises ValueError.
        """
        from minibroker.testing.embedded.broker_security import make_certificate_settings

        changes = make_certificate_settings(self.security, kind)
        for node_id in self.running.node_ids:
            self.running.cluster.controller.change_config(BROKER_RESOURCE, str(node_id), changes)
