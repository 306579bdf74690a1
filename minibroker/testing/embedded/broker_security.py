"""The security of a test broker: its listeners' protocol, a certificate authority, and users.

`Security` is what the broker has from its start to its end, over resets. ACLs and quotas are records of the cluster,
and go with a reset: `verbs/security_verbs.py` has them.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from minibroker.addresses import LOOPBACK, HostPort, parse_host_port
from minibroker.broker.configs.listeners import LISTENER, META_ADDRESSES
from minibroker.broker.configs.settings_table import PROTOCOLS
from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.broker.security.delegation import SECRET_KEY
from minibroker.broker.security.mechanisms import HANDLER, MODULES, SIGNED, URL
from minibroker.broker.security.scram import BY_NAME, make_scram_credential, salt_password
from minibroker.protocol.messages.metadata_records import (
    BROKER_RESOURCE,
    RemoveUserScramCredentialRecord,
)
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.client_configs import quote_for_jaas
from minibroker.testing.embedded.given_settings import AUDIENCE, TEST_ISSUER, TEST_USERS

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker as Cluster
    from minibroker.protocol.declare import Message
    from minibroker.testing.embedded.certificates import CertificateAuthority, CertificateWithKey
    from minibroker.testing.embedded.issuer import Issuer

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
LOCAL_NAMES: Final = ("localhost", LOOPBACK, "::1")
PLAIN_LISTENER: Final = re.compile(r"(?<![^,\s])PLAINTEXT(?=://)", re.IGNORECASE)
ITERATIONS: Final = 4096  # the fewest that Kafka allows


@hide_names("settings", "issuer_settings", "first_records", "restore_passwords", "change_user")
class Security:
    """What a broker with this protocol needs, made in memory."""

    def __init__(self, protocol: str, users: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """`settings` are the broker's own settings.

        Raises ValueError for an unknown protocol, for one without a listener, and for an issuer's address that is none.
        """
        if protocol not in PROTOCOLS:
            raise ValueError(f"security is one of {', '.join(PROTOCOLS)}, and cannot be {protocol!r}")
        self.protocol = protocol
        self.passwords: dict[str, str] = {**parse_users(settings.get(TEST_USERS, "")), **users}
        self._given = {**settings, **_make_secured_listeners(protocol, settings)}
        self.hosts = _list_hosts(self._given)
        self.authority = _get_certificate_authority() if protocol.endswith("SSL") else None
        self._certified = None if self.authority is None else self.authority.issue_certificate("localhost", self.hosts)
        self._token_key = secrets.token_urlsafe(32)
        self.issuer = self._make_issuer() if protocol.startswith("SASL") else None
        if self.issuer is None and TEST_ISSUER in settings:
            raise ValueError(f"with {protocol} there is no issuer for {TEST_ISSUER}: nobody logs in")
        self._records = {name: _make_credentials(name, password) for name, password in self.passwords.items()}

    def _make_issuer(self) -> Issuer:
        from minibroker.testing.embedded.issuer import Issuer  # which a broker without SASL does not need

        address = _parse_address(self._given.get(TEST_ISSUER, "0"))
        name = self.hosts[0] if address.host in META_ADDRESSES else address.host
        return Issuer(self.passwords, self._certified, address, name)

    @property
    def settings(self) -> dict[str, str]:
        """Return the broker's settings, by Kafka's names; those that were given take precedence."""
        own = f"listener.name.{self.protocol.lower()}."
        texts = {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
            SECRET_KEY: self._token_key,
        }
        if self.authority is not None and self._certified is not None:
            texts |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority.certificate,
                "ssl.allow.dn.changes": "true",
                "ssl.allow.san.changes": "true",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
                **make_key_store_settings(self._certified),
            }
        if self.protocol == "SSL":
            texts["ssl.client.auth"] = "requested"
        if self.protocol.startswith("SASL"):
            texts["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            texts[self._jaas_setting] = self._format_plain_users()
            texts[f"{own}oauthbearer.sasl.jaas.config"] = f"{MODULES['OAUTHBEARER']} required;"
        return texts | self._given

    @property
    def issuer_settings(self) -> dict[str, str]:
        """Return the settings that make the broker trust its issuer, which has been started; none without one."""
        if self.issuer is None:
            return {}
        settings = {
            HANDLER: SIGNED[0],
            URL: self.issuer.jwks_url,
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "0",  # a key may be rotated at any time
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": self.issuer.url,
            "sasl.oauthbearer.clock.skew.seconds": "0",
        }
        own = f"listener.name.{self.protocol.lower()}.oauthbearer."
        return {own + name: value for name, value in settings.items()}

    @property
    def first_records(self) -> list[Any]:
        """Return the records of the users' SCRAM credentials, with which each new cluster begins."""
        return [record for records in self._records.values() for record in records]

    def restore_passwords(self, cluster: Cluster) -> None:
        """Set the users' passwords in a cluster that has read older ones from its directory."""
        known = cluster.image.scram_credentials
        missing = [record for record in self.first_records if known.get((record.name, record.mechanism)) != record]
        if missing:
            cluster.commit_metadata_records(missing)
        if self._jaas_setting in cluster.image.get_configs(BROKER_RESOURCE, ""):
            self._change_plain_users(cluster)

    def change_user(self, cluster: Cluster | None, name: str, password: str | None) -> None:
        """Add a user, or remove it without a password; also in `cluster`, if the broker runs."""
        if password is None:
            del self.passwords[name]
            removed = self._records.pop(name)
            changes: list[Message] = [
                RemoveUserScramCredentialRecord(name=name, mechanism=record.mechanism) for record in removed
            ]
        else:
            self.passwords[name] = password
            changes = self._records[name] = _make_credentials(name, password)
        if cluster is not None:
            cluster.commit_metadata_records(changes)
            if self.protocol.startswith("SASL"):
                self._change_plain_users(cluster)

    def _change_plain_users(self, cluster: Cluster) -> None:
        """Change the users of SASL PLAIN in a running cluster."""
        cluster.controller.change_config(BROKER_RESOURCE, "", {self._jaas_setting: self._format_plain_users()})

    @property
    def _jaas_setting(self) -> str:
        """Return the name of the setting that has the users of SASL PLAIN."""
        return f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"

    def _format_plain_users(self) -> str:
        users = "".join(
            f" {quote_for_jaas('user_' + name)}={quote_for_jaas(password)}" for name, password in self.passwords.items()
        )
        return f"{MODULES['PLAIN']} required{users};"


def _get_certificate_authority() -> CertificateAuthority:
    from minibroker.testing.embedded.certificates import CertificateAuthority  # cryptography takes some time to import

    return CertificateAuthority()


def parse_users(text: str) -> dict[str, str]:
    """Return the passwords of `NAME:PASSWORD,...` by name. Raises ValueError, which does not contain them."""
    pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
    if not all(name and colon for name, colon, _ in pairs):
        raise ValueError(f"{TEST_USERS} is NAME:PASSWORD,...")
    return {name: password for name, _, password in pairs}


def _make_secured_listeners(protocol: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the listeners, with this protocol instead of plaintext. Raises ValueError if there is none to change."""
    listeners = settings.get("listeners", f"PLAINTEXT://{LOOPBACK}:0")
    if re.search(rf"(?<![^,\s]){protocol}://", listeners, re.IGNORECASE):
        return {}
    if not PLAIN_LISTENER.search(listeners):
        raise ValueError(f"security makes the listener PLAINTEXT a {protocol} one, and there is none")
    texts = {"listeners": listeners, "advertised.listeners": settings.get("advertised.listeners", "")}
    return {name: PLAIN_LISTENER.sub(protocol, text) for name, text in texts.items() if text}


def _list_hosts(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names under which clients find the broker and the issuer; the first is the first listener's."""
    advertised = settings.get("advertised.listeners") or settings.get("listeners") or f"PLAINTEXT://{LOOPBACK}"
    texts = map(str.strip, advertised.split(","))
    found = [match["host"] for match in map(LISTENER.fullmatch, texts) if match is not None]
    named = [host or socket.getfqdn() for host in found if host not in META_ADDRESSES]
    issuer, _ = _parse_address(settings.get(TEST_ISSUER, "0"))
    return tuple(dict.fromkeys((*named, *LOCAL_NAMES, *({issuer} - {*META_ADDRESSES}))))


def _parse_address(text: str) -> HostPort:
    """Return the host and port of HOST:PORT or PORT, by default on the loopback address. Raises ValueError."""
    try:
        return parse_host_port(text)
    except ValueError:
        raise ValueError(f"{TEST_ISSUER} is HOST:PORT or PORT, and cannot be {text!r}") from None


def make_key_store_settings(certificate: CertificateWithKey) -> dict[str, str]:
    """Return the settings of a key store."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": certificate.key,
        "ssl.keystore.certificate.chain": certificate.certificate,
    }


def _make_credentials(name: str, password: str) -> list[Any]:
    """Return the records of a user's SCRAM credentials, one for each mechanism."""
    made = []
    for mechanism in BY_NAME.values():
        salt = secrets.token_bytes(16)
        salted = salt_password(mechanism, password, salt, ITERATIONS)
        made.append(make_scram_credential(name, mechanism, salt, ITERATIONS, salted))
    return made


def make_certificate_settings(security: Security, kind: str) -> Mapping[str, str]:
    """Return the settings of a listener's key store: "good", "expired", "other host" or "unknown authority"."""
    if security.authority is None:
        raise ValueError(f"with {security.protocol} there are no certificates")
    issue, hosts = security.authority.issue_certificate, security.hosts
    kinds: dict[str, Any] = {
        "good": lambda: issue("localhost", hosts),
        "expired": lambda: issue("localhost", hosts, expired=True),
        "other host": lambda: issue("elsewhere.test", ("elsewhere.test",)),
        "unknown authority": lambda: _get_certificate_authority().issue_certificate("localhost", hosts),
    }
    if kind not in kinds:
        raise ValueError(f"a certificate is one of {', '.join(kinds)}, and cannot be {kind!r}")
    own = f"listener.name.{security.protocol.lower()}."
    return {own + name: value for name, value in make_key_store_settings(kinds[kind]()).items()}
