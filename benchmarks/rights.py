"""What an authorizer with 1,000 ACLs costs a Produce, and a verdict alone."""

from __future__ import annotations

import time

import exchanges
import servers
import wire
from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.broker.security.acls import Acl, Acls, PatternType, Permission
from minibroker.broker.security.authorizer import Authorizer
from minibroker.broker.security.operations import Operation, ResourceType, Right
from minibroker.broker.security.principals import ANONYMOUS
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.security import CreateAclsRequest
from programs import Failed, Unavailable
from report import Case, Column, Measure, Sample, Section
from servers import Server, Target

ACLS = 1000
ON_THE_TOPIC = 100  # of these; the others are of other topics, literal and prefixed in turn
TOPIC = "written"
DEPTH = 16  # requests in flight
AT_ZEROS = 0  # in every answer: its size is below 64 KiB, so that no error is seen there
VERDICTS = 20_000
RIGHT = Right(Operation.WRITE, ResourceType.TOPIC)
SETTINGS = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "allow.everyone.if.no.acl.found=true")


def sections(seconds: float) -> list[Section]:
    producing = [
        Case(f"{partitions} partition{'s' * (partitions > 1)}, {name}", _produce(seconds, partitions, principal))
        for partitions in (1, 2)
        for name, principal in (
            ("no authorizer", None),
            ("allowed", str(ANONYMOUS)),
            ("refused", "User:somebody"),
        )
    ]
    deciding = [
        Case("remembered", lambda target: _verdicts(target, forgetting=False)),
        Case("decided", lambda target: _verdicts(target, forgetting=True)),
    ]
    how = f"Produce v9 with {ACLS:,} ACLs, one record of 100 bytes a partition, {DEPTH} in flight"
    return [
        Section("acls", how, exchanges.RATE_COLUMNS, producing),
        Section("verdicts", f"A verdict on {ACLS:,} ACLs", (Column("verdict_us", "us each"),), deciding),
    ]


def _produce(seconds: float, partitions: int, principal: str | None) -> Measure:
    """Measure Produce where the topic's ACLs allow it to `principal`; None: without an authorizer."""

    def measure(target: Target) -> Sample:
        _must_be_ours(target)
        with (
            servers.data_directory() as folder,
            servers.minibroker_on(folder, settings=SETTINGS if principal else ()) as server,
        ):
            with wire.Client(server) as client:
                client.create_topic(TOPIC, partitions)
                if principal:
                    client.ask(_creation(_acls(principal)))
            _check_that(server, is_refused=principal not in (None, str(ANONYMOUS)))
            return exchanges.pinged(server, _request(partitions), AT_ZEROS, seconds, 1, DEPTH)

    return measure


def _check_that(server: Server, *, is_refused: bool) -> None:
    """Raises Failed if a Produce is answered otherwise."""
    with wire.Client(server) as client:
        try:
            client.produce(TOPIC, wire.batch([b"x"]))
        except Failed as error:
            if is_refused and str(error) == "TOPIC_AUTHORIZATION_FAILED":
                return
            raise
    if is_refused:
        raise Failed("the broker took what it should refuse")


def _request(partitions: int) -> bytes:
    """A frame with a record for each partition. The broker's cache of what it knows has requests of one partition."""
    data = ProduceRequest.TopicProduceData
    batch = memoryview(wire.batch([b"x" * 100]))
    written = [data.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [data(name=TOPIC, partition_data=written)]
    return wire.frame(ProduceRequest(acks=-1, timeout_ms=wire.TIMEOUT_MS, topic_data=topics), wire.PRODUCE_VERSION)


def _acls(principal: str) -> list[Acl]:
    """ACLs of which one allows `principal` to write."""
    return [_acl(TOPIC, principal)] + [
        _acl(TOPIC, f"User:user-{number}")
        if number < ON_THE_TOPIC
        else _acl(f"other-{number}", f"User:user-{number}", PatternType.PREFIXED if number % 2 else PatternType.LITERAL)
        for number in range(1, ACLS)
    ]


def _acl(topic: str, principal: str, pattern_type: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(ResourceType.TOPIC, topic, pattern_type, principal, "*", Operation.WRITE, Permission.ALLOW)


def _creation(acls: list[Acl]) -> CreateAclsRequest:
    creation = CreateAclsRequest.AclCreation
    return CreateAclsRequest(
        creations=[
            creation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )


def _verdicts(target: Target, *, forgetting: bool) -> Sample:
    """Time verdicts in this process; each is decided anew if it is about another address."""
    _must_be_ours(target)
    held = Acls()
    for number, acl in enumerate(_acls(str(ANONYMOUS))):
        held.add_acl(number.to_bytes(16, "big"), acl)
    authorizer = Authorizer(held, allow_without_acl=True)
    hosts = [f"10.0.{number >> 8}.{number & 255}" if forgetting else "10.0.0.1" for number in range(VERDICTS)]
    begun_at = time.process_time()
    for host in hosts:
        authorizer.allows_operation(ANONYMOUS, host, RIGHT, TOPIC)
    return {"verdict_us": (time.process_time() - begun_at) / VERDICTS * 1e6}


def _must_be_ours(target: Target) -> None:
    if target.name != "minibroker":
        raise Unavailable("it is minibroker's own code that is measured")
