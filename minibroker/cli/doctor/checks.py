"""The steps of `minibroker doctor`, each of which yields what it finds, and what to change.

    name -> port -> what speaks there -> TLS -> versions -> login -> nodes -> each node's advertised address -> clock

A step that fails ends the examination, as the later ones need it.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from minibroker.addresses import is_loopback
from minibroker.cli.doctor.port_probe import (
    PortProbe,
    PortSpeaker,
    list_certificate_names,
    parse_certificate,
    probe_port,
)
from minibroker.client.blocking import BlockingNetwork, Client, SocketLink, look_up_host, run_coroutine
from minibroker.client.client_errors import (
    AuthenticationFailed,
    ClientError,
    ProtocolError,
    TokenError,
    UnsupportedVersion,
)
from minibroker.client.cluster_client import format_reason
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.client.opening import negotiate_and_authenticate
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslHandshakeRequest

FAILURES = (OSError, ProtocolError, UnsupportedVersion, AuthenticationFailed, TokenError)
NODES_MAX = 50
CLOCK_PARTITIONS_MAX = 100
CLOCK_SLACK_S = 60
EXPIRES_SOON_DAYS = 14
MAX_TIMESTAMP, MAX_TIMESTAMP_VERSION = -3, 7  # KIP-734
FIRST_FETCH_OF_4_0 = 4
# In all releases that a client meets; their highest versions tell the release.
TELLING = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.JOIN_GROUP,
    ApiKey.API_VERSIONS,
)

ADVERTISED = "Clients use the address that a node advertises, not the one that they connect to first. "
LISTENERS = (
    "Set the server's advertised.listeners to an address that this machine reaches. If clients run both in containers "
    "and outside, give the server two listeners, such as INTERNAL://kafka:29092 and EXTERNAL://localhost:9092."
)


class DoctorFinding(NamedTuple):
    """What a step found, and what to change."""

    kind: Literal["ok", "warning", "problem"]
    text: str
    advice: str | None = None


Findings = Iterator[DoctorFinding]


class DoctorStep(NamedTuple):
    """What the steps share. `settings` are the user's, without `bootstrap.servers`; `clusters` gets ids."""

    address: Address
    settings: Mapping[str, str]
    timeout_s: float
    network: BlockingNetwork
    clusters: dict[Address, str]

    def make_client_settings(self) -> ClientSettings:
        """Return the checked settings of a client of this address."""
        timeout_ms = str(max(1, round(self.timeout_s * 1000)))
        times = {
            "socket.connection.setup.timeout.ms": timeout_ms,
            "socket.connection.setup.timeout.max.ms": timeout_ms,
            "request.timeout.ms": timeout_ms,
            "default.api.timeout.ms": timeout_ms,
        }
        return ClientSettings({**times, **self.settings, "bootstrap.servers": str(self.address)}, "minibroker-doctor")


def examine_server(
    address: Address,
    settings: Mapping[str, str],
    timeout_s: float,
    network: BlockingNetwork,
    clusters: dict[Address, str] | None = None,
) -> Findings:
    """Yield findings about a server: port, protocol, login, advertised addresses, clock; add its cluster to `clusters`.

    `settings` are those of a client, by Kafka's names; `timeout_s` is for each step. Raises SettingError.
    """
    step = DoctorStep(address, settings, timeout_s, network, {} if clusters is None else clusters)
    yield from _find_unused_settings(settings)
    probe = yield from _check_port(step)
    if probe is None or not (yield from _check_spoken_protocol(step, probe)):
        return
    metadata = yield from _check_login(step)
    if metadata is None:
        return
    if (yield from _check_advertised_addresses(step, metadata)):
        yield from _check_clock(step)


def _find_unused_settings(settings: Mapping[str, str]) -> Findings:
    """Yield a warning if there are settings `sasl.*`, and security.protocol is without SASL."""
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).strip().upper()
    given = sorted(name for name in settings if name.startswith("sasl."))
    if given and not protocol.startswith("SASL_"):
        text = f"{', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect with security.protocol={protocol}"
        yield DoctorFinding("warning", text, f"Set security.protocol=SASL_{protocol}, or leave the settings out.")


def compare_cluster_ids(clusters: Mapping[Address, str]) -> Findings:
    """Compare the ids of the clusters that the bootstrap servers are of."""
    if len(set(clusters.values())) > 1:
        each = ", ".join(f"{address} is of {cluster}" for address, cluster in clusters.items())
        text = f"the bootstrap servers are of {len(set(clusters.values()))} clusters: {each}"
        yield DoctorFinding("problem", text, "A client uses whichever answers first. Name servers of one cluster.")


# --- name and port ------------------------------------------------------------------------------------


def _check_port(
    step: DoctorStep, port_owner: str = "", advice: str = ""
) -> Generator[DoctorFinding, None, PortProbe | None]:
    """Look up the name, connect to each of its addresses, and return what answers; None if nothing does."""
    host, port = step.address
    try:
        infos = look_up_host(host, port, step.timeout_s)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        yield DoctorFinding(
            "problem",
            f"{host}{port_owner} cannot be looked up: {reason}",
            advice or _advise_on_unresolved_host(host),
        )
        return None
    ips = list(dict.fromkeys(str(info[4][0]) for info in infos))
    if ips != [host]:
        yield DoctorFinding("ok", f"{host} is {', '.join(ips)}")
    results: dict[str, PortProbe | OSError] = {}
    for ip in ips:
        try:
            results[ip] = probe_port(Address(ip, port), host, step.timeout_s)
        except OSError as error:
            results[ip] = error
        else:
            yield DoctorFinding("ok", f"{Address(ip, port)} accepts connections")
    answered = [result for result in results.values() if isinstance(result, PortProbe)]
    kind: Literal["warning", "problem"] = "warning" if answered else "problem"
    for ip, result in results.items():
        if isinstance(result, OSError):
            reason = _explain_connect_error(result, step.timeout_s)
            text = f"{Address(ip, port)}{port_owner} does not accept connections: {reason}"
            others = "Clients that try this address first are slow or fail. Use an address in place of the name."
            yield DoctorFinding(kind, text, others if answered else advice or _advise_on_closed_port(ip, result))
    return answered[0] if answered else None


def _explain_connect_error(error: OSError, timeout_s: float) -> str:
    return f"no answer in {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error.strerror or error)


def _advise_on_unresolved_host(host: str) -> str:
    if "." not in host:
        return (
            "A name without a dot is often that of a container, which only its own Docker or Kubernetes network knows. "
            "From outside, use localhost or the host's name, and the published port."
        )
    return "Check the spelling, and whether this machine uses the name server that knows the name."


def _advise_on_closed_port(ip: str, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        if is_loopback(ip):
            if _is_in_container():
                return (
                    "This is a container, and localhost is the container itself. If the server runs elsewhere, use the "
                    "name of its container or service, or host.docker.internal for the host."
                )
            return "Nothing listens on this port. Start the server, or check the port; publish a container's port."
        return "Nothing listens on this port of that machine, or only on its loopback address: check `listeners`."
    return "A firewall may drop the packets, or the machine is off. Check security groups, VPN and network policies."


def _is_in_container() -> bool:
    return os.path.exists("/.dockerenv") or "KUBERNETES_SERVICE_HOST" in os.environ


# --- what speaks there ----------------------------------------------------------------------------------


def _check_spoken_protocol(step: DoctorStep, probe: PortProbe) -> Generator[DoctorFinding, None, bool]:
    """Compare the protocol on the port with that of the settings. Return whether to go on with the next checks."""
    wants_tls = str(step.settings.get("security.protocol", "PLAINTEXT")).strip().upper().endswith("SSL")
    if probe.speaker is PortSpeaker.TLS:
        yield DoctorFinding("ok" if wants_tls else "problem", *_describe_tls_on_port(wants_tls))
        if probe.certificate is not None:
            yield from _check_certificate(step.address.host, probe.certificate)
        return wants_tls
    if probe.speaker is PortSpeaker.KAFKA:
        if wants_tls:
            text = "the server speaks Kafka's protocol without TLS, but security.protocol is one with TLS"
            yield DoctorFinding(
                "problem", text, "Set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the TLS port."
            )
        return not wants_tls
    does_not_say = probe.speaker in (PortSpeaker.CLOSES, PortSpeaker.SILENT)
    text = probe.speaker.value if does_not_say else f"speaks {probe.speaker.value}, not Kafka's protocol"
    yield DoctorFinding("problem", f"the server {text}", _advise_on_spoken_protocol(probe.speaker))
    return False


def _describe_tls_on_port(wants_tls: bool) -> tuple[str, str | None]:
    """Return a finding's text that the server speaks TLS, and advice if the client does not want TLS, else None."""
    if wants_tls:
        return "the server speaks TLS", None
    return "the server speaks TLS, but security.protocol is one without", (
        "Add --client security.protocol=SSL, or SASL_SSL if clients log in; and --client ssl.ca.location=FILE if the "
        "certificate's issuer is not known to this machine."
    )


def _advise_on_spoken_protocol(speaker: PortSpeaker) -> str:
    if speaker is PortSpeaker.HTTP:
        return "A schema registry, REST proxy, Connect or a web page speaks HTTP. Use the port of a Kafka listener."
    if speaker in (PortSpeaker.CLOSES, PortSpeaker.SILENT):
        return (
            "If the port is a container's, Docker accepts connections although nothing listens in the container. The "
            "server may still be starting, be too busy, want a client certificate, or be older than 0.10."
        )
    return "Check host and port."


def _check_certificate(host: str, der_bytes: bytes) -> Findings:
    certificate = parse_certificate(der_bytes)
    if certificate is None:
        yield DoctorFinding("problem", "the server's certificate is malformed")
        return
    names, end = list_certificate_names(certificate), certificate.not_valid_after_utc
    days = (end - datetime.now(UTC)).days
    issuer = certificate.issuer.rfc4514_string()
    text = f"its certificate is for {', '.join(names) or 'no name'}, issued by {issuer}, valid until {end:%Y-%m-%d}"
    if end < datetime.now(UTC):
        yield DoctorFinding(
            "problem", f"{text}: it has expired", "Renew the certificate, or check this machine's clock."
        )
    elif certificate.not_valid_before_utc > datetime.now(UTC):
        yield DoctorFinding("problem", f"{text}: it is not valid yet", "Check this machine's clock and the server's.")
    else:
        yield DoctorFinding("warning" if days < EXPIRES_SOON_DAYS else "ok", f"{text} ({days} days)")
    if not _is_host_in_certificate(host, names):
        advice = f"Connect to a name in the certificate, or issue one for {host}."
        yield DoctorFinding("problem", f"the certificate is not for {host}", advice)


def _is_host_in_certificate(host: str, names: Iterable[str]) -> bool:
    """Return whether a certificate's names have a host; `*` stands for one label."""
    _, _, domain = host.partition(".")
    return any(name.lower() in (host.lower(), f"*.{domain}".lower() if domain else None) for name in names)


# --- versions and login -----------------------------------------------------------------------------------


def _check_login(step: DoctorStep) -> Generator[DoctorFinding, None, Any]:
    """Open a connection as a client would, and return the answer to Metadata; None if there is a problem."""
    settings = step.make_client_settings()
    link = None
    try:
        link = _connect_and_log_in(step, settings)
        yield DoctorFinding("ok", _describe_server_release(link))
        if settings.credentials is not None:
            yield DoctorFinding("ok", f"logged in by {settings.credentials.mechanism}")
        elif mechanisms := _get_mechanisms(link, step.timeout_s):
            protocol = "SASL_PLAINTEXT" if settings.tls is None else "SASL_SSL"
            text = f"clients must log in, by {' or '.join(mechanisms)}"
            yield DoctorFinding(
                "problem", text, f"Set security.protocol={protocol}, sasl.mechanism, and the credentials."
            )
            return None
        return _send_request(link, MetadataRequest(topics=[]), step.timeout_s, lowest=1)
    except FAILURES as error:
        yield DoctorFinding(
            "problem", _describe_login_failure(error, step.timeout_s), _advise_on_login_failure(error, settings)
        )
        return None
    finally:
        if link is not None:
            link.close()


def _connect_and_log_in(step: DoctorStep, settings: ClientSettings) -> SocketLink:
    link = run_coroutine(step.network.connect(*step.address, settings, step.timeout_s))
    try:
        run_coroutine(negotiate_and_authenticate(link, settings, step.network, step.timeout_s))
    except BaseException:
        link.close()
        raise
    return link


def _send_request(link: SocketLink, request: Message, timeout_s: float, lowest: int = 0) -> Any:
    """Send a request, of version `lowest` or a later one, and return the response."""
    correlation_id, data = link.connection.encode_request(
        request, link.connection.choose_version(type(request), lowest)
    )
    run_coroutine(link.write(data, timeout_s))
    return run_coroutine(link.wait_for_answer(correlation_id, timeout_s))


def _get_mechanisms(link: SocketLink, timeout_s: float) -> list[str]:
    """Return the mechanisms of a listener on which clients must log in; none for another."""
    if ApiKey.SASL_HANDSHAKE not in link.connection.versions:
        return []
    answer = _send_request(link, SaslHandshakeRequest(mechanism=""), timeout_s)
    return list(answer.mechanisms) if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else []


def _describe_server_release(link: SocketLink) -> str:
    versions = link.connection.versions
    release = guess_kafka_release(versions)
    of_release = f", those of Apache Kafka {release}" if release else ""
    refuses_old = versions.get(ApiKey.FETCH, range(1))[0] >= FIRST_FETCH_OF_4_0
    of_clients = "; it refuses clients older than 2.1" if refuses_old else ""
    return f"the server has {len(versions)} APIs{of_release}{of_clients}"


def guess_kafka_release(versions: Mapping[int, range]) -> str | None:
    """Return the newest release of Apache Kafka whose requests a server takes, judged by those in `TELLING`."""
    from minibroker.testing.emulation.releases import RELEASES, list_versions_of_release

    for release in reversed(RELEASES):
        known = list_versions_of_release(release)
        if all(known[key][-1] in versions.get(key, ()) for key in TELLING if key in known):
            return release
    return None


def _describe_login_failure(error: Exception, timeout_s: float) -> str:
    return _explain_connect_error(error, timeout_s) if isinstance(error, TimeoutError) else format_reason(error)


def _advise_on_login_failure(error: Exception, settings: ClientSettings) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Give the certificate of the issuer: --client ssl.ca.location=FILE (PEM)."
    if isinstance(error, ssl.SSLError):
        return "The server may want a client certificate: ssl.certificate.location and ssl.key.location."
    if isinstance(error, AuthenticationFailed):
        return "Check sasl.mechanism, the user and the password, and that the server has this user."
    if isinstance(error, ConnectionError) and settings.tls is not None:
        return "The server may want a client certificate: ssl.certificate.location and ssl.key.location."
    return None


# --- the cluster's nodes ------------------------------------------------------------------------------------


def _check_advertised_addresses(step: DoctorStep, metadata: Any) -> Generator[DoctorFinding, None, bool]:
    """Examine the address that each node advertises. Return whether all can be reached."""
    cluster = getattr(metadata, "cluster_id", None) or "without an id"
    step.clusters.setdefault(step.address, cluster)
    yield DoctorFinding("ok", f"cluster {cluster} has {_format_count(len(metadata.brokers), 'node')}")
    reached = []
    for node in metadata.brokers[:NODES_MAX]:
        reached.append((yield from _check_advertised_address(step, node, cluster)))
    if not reached:
        advice = "Wait until a node is registered with the controller."
        yield DoctorFinding("problem", "the cluster has no nodes yet", advice)
    return bool(reached) and all(reached)


def _check_advertised_address(step: DoctorStep, node: Any, cluster: str) -> Generator[DoctorFinding, None, bool]:
    """Examine the address that one node advertises. Return whether clients can use it."""
    advertised = Address(node.host, node.port)
    if advertised == step.address:
        yield DoctorFinding("ok", f"node {node.node_id} advertises {advertised}, the address that was asked")
        return True
    yield DoctorFinding("ok", f"node {node.node_id} advertises {advertised}")
    if is_loopback(node.host) and not is_loopback(step.address.host):
        text = f"{node.host}, which node {node.node_id} advertises, is this machine, and not {step.address.host}"
        yield DoctorFinding("problem", text, f"{ADVERTISED}{LISTENERS}")
        return False
    theirs = step._replace(address=advertised)
    probe = yield from _check_port(theirs, f", which node {node.node_id} advertises,", f"{ADVERTISED}{LISTENERS}")
    if probe is None or not (yield from _check_spoken_protocol(theirs, probe)):
        return False
    answer = yield from _check_login(theirs)
    if answer is None:
        return False
    if (getattr(answer, "cluster_id", None) or cluster) != cluster:
        yield DoctorFinding(
            "problem", f"{advertised} is another cluster, {answer.cluster_id}", f"{ADVERTISED}{LISTENERS}"
        )
        return False
    return True


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- the clock ------------------------------------------------------------------------------------------------


def _check_clock(step: DoctorStep) -> Findings:
    """Compare the newest timestamps of records with this machine's clock, as Kafka does not tell the time."""
    try:
        with Client(step.make_client_settings(), step.network) as client:
            newest_ms = max(_iterate_newest_timestamps_ms(client), default=-1)
    except ClientError as error:
        yield DoctorFinding("warning", f"the topics cannot be examined: {error}")
        return
    ahead_s = newest_ms / 1000 - time.time()
    if ahead_s > CLOCK_SLACK_S:
        text = f"the newest record is from {ahead_s:,.0f} s in the future"
        yield DoctorFinding("warning", text, "Compare the clocks of this machine, of the server and of its producers.")
    elif newest_ms >= 0:
        yield DoctorFinding("ok", "no record is from the future, as it might be if a clock were wrong")


def _iterate_newest_timestamps_ms(client: Client) -> Iterator[int]:
    """Yield the newest timestamp of each partition that has records."""
    leaders: dict[int, list[tuple[str, int]]] = {}
    partitions = [
        (topic.name, each.partition_index, each.leader_id)
        for topic in client.fetch_metadata(None).topics
        for each in topic.partitions
        if each.leader_id >= 0
    ]
    for name, index, leader in partitions[:CLOCK_PARTITIONS_MAX]:
        leaders.setdefault(leader, []).append((name, index))
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    for leader, wanted in leaders.items():
        topics = [
            of_topic(
                name=name, partitions=[of_topic.ListOffsetsPartition(partition_index=index, timestamp=MAX_TIMESTAMP)]
            )
            for name, index in wanted
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=client.settings.request_timeout_ms)
        try:
            answer = client.request(request, leader, lowest=MAX_TIMESTAMP_VERSION)
        except ClientError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                return
            raise
        for topic in answer.topics:
            yield from (each.timestamp for each in topic.partitions if each.timestamp >= 0)
