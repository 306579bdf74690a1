"""A handover as Strimzi's resources: KafkaTopic, and KafkaUser with its ACLs and quotas.

The fields are those of `kafka.strimzi.io/v1`. All texts are quoted as in JSON, which is YAML, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from minibroker.cli.handover.handover_shell import OPERATIONS, convert_to_pascal_case
from minibroker.cli.handover.handover_state import HandoverState, HandoverTopic
from minibroker.cli.security.acls_command import ListedAcl
from minibroker.cli.security.quotas_command import DEFAULT, ListedQuota
from minibroker.protocol.legible import escape_unprintable

VERSION: Final = "kafka.strimzi.io/v1"
RESOURCE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_CHARACTERS: Final = 253
KEPT_CHARACTERS: Final = 200  # of a name that cannot stay as it is
UNPRINTABLE: Final = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9./-]*")
QUOTAS: Final = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
RESOURCES: Final = {
    "topic": "topic",
    "group": "group",
    "cluster": "cluster",
    "transactional_id": "transactionalId",
}
PATTERNS: Final = {"literal": "literal", "prefixed": "prefix"}
USER: Final = "User:"
COMMON_NAME: Final = "CN="  # the principal of a certificate, as Strimzi makes and expects it
ResourceFields = dict[str, Any]


def make_strimzi_resources(state: HandoverState, cluster: str) -> str:
    """Return Strimzi's resources in YAML, for the Kafka resource `cluster`."""
    left_out_notes = [*state.left_out, *(f"the configs of {each.resource_description}" for each in state.configs)]
    left_out_notes += [f"the offsets of the group {group!r}" for group in state.offsets]
    documents = [_make_topic_resource(topic, cluster) for topic in state.topics]
    documents += _iterate_users(state, cluster, left_out_notes)
    head = f"# Written by `minibroker handover` from {escape_unprintable(state.source)}, for Strimzi with {VERSION}.\n"
    notes = "".join(f"# Left out: {escape_unprintable(note)}\n" for note in left_out_notes)
    return head + notes + "".join("---\n" + "".join(_write_yaml(each)) for each in documents)


def _make_topic_resource(topic: HandoverTopic, cluster: str) -> ResourceFields:
    spec: ResourceFields = {"topicName": topic.name, "partitions": topic.partitions, "replicas": topic.replicas}
    if topic.configs:
        spec["config"] = topic.configs
    return _make_resource("KafkaTopic", topic.name, cluster, spec)


def _make_resource(kind: str, name: str, cluster: str, spec: ResourceFields) -> ResourceFields:
    metadata = {"name": make_resource_name(name), "labels": {"strimzi.io/cluster": cluster}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def make_resource_name(name: str) -> str:
    """Return a name that Kubernetes takes: the same one if it can, else one that is derived from it."""
    if len(name) <= NAME_CHARACTERS and RESOURCE_NAME.fullmatch(name):
        return name
    readable = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:KEPT_CHARACTERS]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def _iterate_users(state: HandoverState, cluster: str, left_out_notes: list[str]) -> Iterator[ResourceFields]:
    """Yield a resource for each user that logs in by SCRAM, or has ACLs or quotas of its own."""
    mechanisms = {user: {row.mechanism for row in rows} for user, rows in groupby(state.users, lambda row: row.user)}
    acls = _group_acls(state.acls, left_out_notes)
    quotas = _group_quotas(state.quotas, left_out_notes)
    for name in sorted({*mechanisms, *acls, *quotas}):
        of_certificate = name.startswith(COMMON_NAME) and "," not in name
        own = name.removeprefix(COMMON_NAME) if of_certificate else name
        spec: ResourceFields = (
            {} if make_resource_name(own) == own else {"userName": own}
        )  # since Strimzi has this field
        if "SCRAM-SHA-512" in mechanisms.get(name, ()):
            spec["authentication"] = {"type": "scram-sha-512"}
        elif name in mechanisms:
            left_out_notes.append(f"the login of {name!r} by SCRAM-SHA-256, which Strimzi does not have")
        elif of_certificate:
            spec["authentication"] = {"type": "tls-external"}
        if name in acls:
            spec["authorization"] = {"type": "simple", "acls": acls[name]}
        if name in quotas:
            spec["quotas"] = quotas[name]
        yield _make_resource("KafkaUser", own, cluster, spec)


def _group_acls(acls: Iterable[ListedAcl], left_out_notes: list[str]) -> dict[str, list[ResourceFields]]:
    """Return the ACLs of each user as fields of a KafkaUser; note others as left out."""
    acls_by_user: dict[str, list[ResourceFields]] = {}
    for acl, rows in groupby(acls, key=lambda row: row._replace(operation="")):
        operations = [convert_to_pascal_case(row.operation) for row in rows]
        is_named = acl.principal.startswith(USER) and acl.principal != f"{USER}*"
        if not is_named or acl.resource not in RESOURCES or not OPERATIONS.issuperset(operations):
            what = f"{acl.permission} {acl.principal!r} {', '.join(operations)} on the {acl.resource} {acl.name!r}"
            left_out_notes.append(f"an ACL that no KafkaUser has: {what}")
            continue
        resource: ResourceFields = {"type": RESOURCES[acl.resource]}
        if acl.resource != "cluster":
            resource |= {"name": acl.name, "patternType": PATTERNS[acl.pattern]}
        rule = {"type": acl.permission, "resource": resource, "operations": operations, "host": acl.host}
        acls_by_user.setdefault(acl.principal.removeprefix(USER), []).append(rule)
    return acls_by_user


def _group_quotas(quotas: Iterable[ListedQuota], left_out_notes: list[str]) -> dict[str, dict[str, float]]:
    """Return the quotas of each user as fields of a KafkaUser; note others as left out."""
    found: dict[str, dict[str, float]] = {}
    for quota in quotas:
        if quota.user in (None, DEFAULT) or quota.client_id is not None or quota.quota not in QUOTAS:
            left_out_notes.append(f"a quota that no KafkaUser has: {quota.quota}={quota.value} of {quota[:3]!r}")
            continue
        is_whole = quota.quota != "controller_mutation_rate"
        value = int(quota.value) if is_whole else quota.value
        found.setdefault(str(quota.user), {})[QUOTAS[quota.quota]] = value
    return found


def _write_yaml(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping, in block style."""
    for key, value in fields.items():
        name = key if PLAIN.fullmatch(key) else _write_scalar(key)
        if isinstance(value, dict):
            yield f"{indent}{name}:\n"
            yield from _write_yaml(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{indent}{name}:\n"
            for item in value:
                first, *others = _write_yaml(item, indent + "    ")
                yield f"{indent}  - {first.lstrip(' ')}"
                yield from others
        else:
            yield f"{indent}{name}: {_write_scalar(value)}\n"


def _write_scalar(value: Any) -> str:
    """Return a text, number or list of them as JSON, with what YAML does not take in a text escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
