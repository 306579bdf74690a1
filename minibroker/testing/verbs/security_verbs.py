"""The methods for users, ACLs and quotas, and what a client of a secure broker is configured with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minibroker.broker.metadata.image import QuotaEntity
from minibroker.broker.quotas.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    QuotaValueLimit,
    check_quota_value,
    make_quota_record,
    parse_quota_entity,
)
from minibroker.broker.security.acls import Acl, PatternType, Permission, check_new_acl
from minibroker.broker.security.operations import CLUSTER_NAME, Operation, ResourceType, format_user_resource
from minibroker.protocol.messages.metadata_records import (
    RemoveAccessControlEntryRecord,
)
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.client_configs import LIBRARIES, ClientAccess, TokenAccess
from minibroker.testing.embedded.given_settings import AUDIENCE
from minibroker.testing.loops import BrokerLoop, immediate, shorten_tracebacks

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker as Cluster
    from minibroker.testing.embedded.broker_security import Security
    from minibroker.testing.embedded.embedded_broker import EmbeddedBroker


@hide_names("loop")
class VerbsOnBroker:
    """Verbs that run on the loop of a broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    @property
    def loop(self) -> BrokerLoop:
        """Return the broker's loop. Raises NotRunning."""
        return self._broker.loop

    @property
    def _cluster(self) -> Cluster:
        return self._broker.running.cluster


class Users(VerbsOnBroker):
    """The users, each with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. They survive a reset."""

    @shorten_tracebacks
    def add(self, name: str, password: str | None = None) -> str:
        """Add a user, or change its password; return the password, by default a generated one."""
        import secrets

        password = secrets.token_urlsafe(12) if password is None else password
        self._broker.call_on_loop(lambda: self._change_password(name, password))
        return password

    @shorten_tracebacks
    def remove(self, name: str) -> None:
        """Remove a user; open connections stay. Raises KeyError."""
        self._broker.call_on_loop(lambda: self._change_password(name, None))

    def _change_password(self, name: str, password: str | None) -> None:
        cluster = self._cluster if self._broker.is_running else None
        self._broker.security.change_user(cluster, name, password)


class AclVerbs(VerbsOnBroker):
    """The ACLs. While a resource has none, everyone may do everything with it."""

    @immediate
    def allow(
        self,
        user: str,
        operation: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        delegation_token: str | None = None,
        user_principal: str | None = None,
        host: str = "*",
    ) -> None:
        """Allow a user ("*" for all) an operation such as "read" on a topic, group or transactional id, or the cluster.

        `delegation_token` is the id of a token to describe, `user_principal` a user for "create_tokens" and
        "describe_tokens". A name that ends with "*" is a prefix, and "*" matches all names. `host` is an address or a
        range of addresses.
        Raises ValueError for an unknown operation, and KafkaError(INVALID_REQUEST).
        """
        where = _choose_resource_type_and_name(topic, group, transactional_id, delegation_token, user_principal)
        self._add_acl(Permission.ALLOW, user, operation, where, host)

    @immediate
    def deny(
        self,
        user: str,
        operation: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        delegation_token: str | None = None,
        user_principal: str | None = None,
        host: str = "*",
    ) -> None:
        """Deny what `allow` allows, with the same arguments. A denial takes precedence. Raises as `allow`."""
        where = _choose_resource_type_and_name(topic, group, transactional_id, delegation_token, user_principal)
        self._add_acl(Permission.DENY, user, operation, where, host)

    @immediate
    def clear(self) -> None:
        """Remove all ACLs."""
        ids = list(self._cluster.image.acls.by_id)
        self._cluster.commit_metadata_records([RemoveAccessControlEntryRecord(id=id) for id in ids])

    def _add_acl(self, permission: Permission, user: str, operation: str, resource: tuple[int, str], host: str) -> None:
        """Create an ACL, unless there is one like it. `resource` is (type, name); `name*` is a prefix."""
        resource_type, name = resource
        is_prefix = name.endswith("*") and name != "*"
        acl = Acl(
            resource_type,
            name[:-1] if is_prefix else name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            user if ":" in user else f"User:{user}",
            host,
            _parse_operation(operation),
            permission,
        )
        check_new_acl(acl)
        if acl not in self._cluster.image.acls.ids:
            self._cluster.commit_metadata_records([acl.make_acl_record(self._cluster.make_uuid())])


def _choose_resource_type_and_name(
    topic: str | None, group: str | None, transactional_id: str | None, token: str | None, user: str | None
) -> tuple[int, str]:
    """Return the type and name of a resource. Raises ValueError for more than one."""
    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.DELEGATION_TOKEN: token,
        ResourceType.USER: None if user is None else format_user_resource(user),
    }
    resources = [(kind, name) for kind, name in named.items() if name is not None]
    if len(resources) > 1:
        raise ValueError("an ACL is about a topic, a group, a transactional id, ..., or the cluster, not about several")
    return resources[0] if resources else (ResourceType.CLUSTER, CLUSTER_NAME)


def _parse_operation(name: str) -> int:
    known = {each.name.lower(): each for each in Operation if each is not Operation.ANY}
    if name not in known:
        raise ValueError(f"an operation is one of {', '.join(known)}, and cannot be {name!r}")
    return known[name]


class QuotaVerbs(VerbsOnBroker):
    """The quotas of users, client ids and addresses, on the broker's clock."""

    @immediate
    def set(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        producer_byte_rate: float | None = None,
        consumer_byte_rate: float | None = None,
        request_percentage: float | None = None,
        controller_mutation_rate: float | None = None,
        connection_creation_rate: float | None = None,
    ) -> None:
        """Set quotas of a user, a client id, both, or an address; "*" is the default.

        Rates are per second. Raises KafkaError(INVALID_REQUEST) for an invalid value.
        """
        limits = {
            "producer_byte_rate": producer_byte_rate,
            "consumer_byte_rate": consumer_byte_rate,
            "request_percentage": request_percentage,
            "controller_mutation_rate": controller_mutation_rate,
            "connection_creation_rate": connection_creation_rate,
        }
        entity, known = _parse_quota_entity(user, client_id, ip)
        set_limits = {key: value for key, value in limits.items() if value is not None}
        for key, value in set_limits.items():
            check_quota_value(known, key, value)
        self._cluster.commit_metadata_records(
            [make_quota_record(entity, key, value) for key, value in set_limits.items()]
        )

    @immediate
    def remove(self, *, user: str | None = None, client_id: str | None = None, ip: str | None = None) -> None:
        """Remove the quotas of a user, a client id, both, or an address. Raises KafkaError(INVALID_REQUEST)."""
        entity, _ = _parse_quota_entity(user, client_id, ip)
        known = self._cluster.image.quotas.get(entity, {})
        self._cluster.commit_metadata_records([make_quota_record(entity, key, None) for key in known])


def _parse_quota_entity(
    user: str | None, client_id: str | None, ip: str | None
) -> tuple[QuotaEntity, Mapping[str, QuotaValueLimit]]:
    """Return the entity of these names, and the quotas that it may have, with their limits, by name."""
    named = {USER: user, CLIENT_ID: client_id, IP: ip}
    return parse_quota_entity((kind, None if name == "*" else name) for kind, name in named.items() if name is not None)


def make_client_config(broker: EmbeddedBroker, library: str, user: str | None, mechanism: str | None) -> Any:
    """Return the settings of a library's client; add the user if it does not exist. Raises ValueError."""
    if library not in LIBRARIES:
        raise ValueError(f"a library is one of {', '.join(LIBRARIES)}, and cannot be {library!r}")
    security = broker.security if broker.is_secured else None
    protocol = "PLAINTEXT" if security is None else security.protocol
    password = authority = certified = tokens = None
    if security is not None and protocol.startswith("SASL"):
        from minibroker.testing.embedded.broker_security import MECHANISMS

        mechanism, user = mechanism or "SCRAM-SHA-512", user or "user"
        if mechanism not in MECHANISMS:
            raise ValueError(f"a mechanism is one of {', '.join(MECHANISMS)}, and cannot be {mechanism!r}")
        password = security.passwords.get(user) or Users(broker).add(user)
        if mechanism == "OAUTHBEARER":
            tokens = _make_token_access(security, user, password)
    elif mechanism is not None:
        raise ValueError(f"with {protocol} nobody logs in by {mechanism}")
    if security is not None and security.authority is not None:
        authority = security.authority.certificate
        if user is not None and protocol == "SSL":
            certified = security.authority.issue_certificate(user)
    servers = broker.bootstrap_servers
    return LIBRARIES[library](ClientAccess(servers, protocol, authority, certified, mechanism, user, password, tokens))


def _make_token_access(security: Security, user: str, password: str) -> TokenAccess:
    """Return how clients of a user get OAuth tokens from the issuer."""
    issuer = security.issuer
    assert issuer is not None  # with SASL
    return TokenAccess(issuer.token_endpoint, AUDIENCE, lambda: issuer.make_token_for_client(user, password))
