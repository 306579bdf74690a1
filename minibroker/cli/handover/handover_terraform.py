"""A handover for Terraform, with the resources of the provider Mongey/kafka.

Passwords are variables. A user's or a client id's quotas are `kafka_quota`, those of both `kafka_quota_composite`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from minibroker.cli.handover.handover_shell import OPERATIONS, convert_to_pascal_case
from minibroker.cli.handover.handover_state import HandoverState, HandoverTopic
from minibroker.cli.security.acls_command import ListedAcl
from minibroker.cli.security.quotas_command import DEFAULT, ListedQuota
from minibroker.cli.security.users_command import ListedUser
from minibroker.protocol.legible import escape_unprintable

HEAD: Final = """\
# Written by `minibroker handover` from {source}, for the provider Mongey/kafka.
{notes}
terraform {{
  required_providers {{
    kafka = {{
      source = "Mongey/kafka"
    }}
  }}
}}

variable "bootstrap_servers" {{
  type = list(string)
}}

# The provider uses TLS unless tls_enabled is false; its other settings are the login.
provider "kafka" {{
  bootstrap_servers = var.bootstrap_servers
}}
"""
PASSWORDS: Final = """
variable "passwords" {
  type        = map(string)
  sensitive   = true
  description = "The password of each user by its name."
}
"""
LABEL: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
RESOURCES: Final = {
    "topic": "Topic",
    "group": "Group",
    "cluster": "Cluster",
    "transactional_id": "TransactionalID",
    "delegation_token": "DelegationToken",
}
KEPT_CHARACTERS: Final = 60  # of names in a label that is derived from them
QUOTED: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
ENTITIES: Final = ("user", "client-id", "ip")


def make_terraform_configuration(state: HandoverState) -> str:
    """Return a Terraform configuration that creates all that `state` has in another cluster."""
    left_out_notes = [*state.left_out, *(f"the configs of {each.resource_description}" for each in state.configs)]
    left_out_notes += [f"the offsets of the group {group!r}" for group in state.offsets]
    blocks = [_write_topic(topic) for topic in state.topics]
    blocks += map(_write_user, state.users)
    blocks += _write_acls(state.acls, left_out_notes)
    blocks += _write_quotas(state.quotas)
    notes = "".join(f"# Left out: {escape_unprintable(note)}\n" for note in left_out_notes)
    head = HEAD.format(source=escape_unprintable(state.source), notes=notes)
    return head + (PASSWORDS if state.users else "") + "".join(blocks)


def _write_topic(topic: HandoverTopic) -> str:
    fields = {
        "name": quote_text(topic.name),
        "partitions": str(topic.partitions),
        "replication_factor": str(topic.replicas),
    }
    if topic.configs:
        fields["config"] = _write_map((key, quote_text(value)) for key, value in topic.configs.items())
    return _write_block("kafka_topic", make_label(topic.name), fields)


def _write_user(user: ListedUser) -> str:
    fields = {
        "username": quote_text(user.user),
        "scram_mechanism": quote_text(user.mechanism),
        "scram_iterations": str(user.iterations),
        "password_wo": f"var.passwords[{quote_text(user.user)}]",
        "password_wo_version": quote_text("1"),
    }
    return _write_block("kafka_user_scram_credential", make_label(user.user, user.mechanism), fields)


def _write_acls(acls: Iterable[ListedAcl], left_out_notes: list[str]) -> Iterator[str]:
    for acl in acls:
        operation = convert_to_pascal_case(acl.operation)
        if acl.resource not in RESOURCES or operation not in OPERATIONS:
            what = f"{acl.permission} {acl.principal!r} {operation} on the {acl.resource} {acl.name!r}"
            left_out_notes.append(f"an ACL that the provider does not have: {what}")
            continue
        fields = {
            "resource_type": quote_text(RESOURCES[acl.resource]),
            "resource_name": quote_text(acl.name),
            "resource_pattern_type_filter": quote_text(acl.pattern.capitalize()),
            "acl_principal": quote_text(acl.principal),
            "acl_host": quote_text(acl.host),
            "acl_operation": quote_text(operation),
            "acl_permission_type": quote_text(acl.permission.capitalize()),
        }
        yield _write_block("kafka_acl", make_label(*acl), fields)


def _write_quotas(quotas: Iterable[ListedQuota]) -> Iterator[str]:
    """Yield a block for the quotas of each entity."""
    for entity, rows in groupby(quotas, key=lambda row: (row.user, row.client_id, row.ip)):
        parts = [(kind, name) for kind, name in zip(ENTITIES, entity, strict=True) if name is not None]
        config = {"config": _write_map((row.quota, json.dumps(row.value)) for row in rows)}
        own_label = make_label(*(word for part in parts for word in part))
        if len(parts) == 1:
            yield _write_block("kafka_quota", own_label, {**_make_entity_fields("entity_", *parts[0]), **config})
        else:
            nested = "".join(
                f"  entity {{\n{_write_fields(_make_entity_fields('', *part), '    ')}  }}\n" for part in parts
            )
            yield _write_block("kafka_quota_composite", own_label, config, nested)


def _make_entity_fields(prefix: str, kind: str, name: str) -> dict[str, str]:
    """Return the fields that name a quota's entity: its type, and its name unless it is the default."""
    named = {} if name == DEFAULT else {f"{prefix}name": quote_text(name)}
    return {f"{prefix}type": quote_text(kind), **named}


def _write_block(kind: str, own_label: str, fields: Mapping[str, str], nested_block: str = "") -> str:
    """Return a resource block of Terraform, with these fields after the nested block."""
    return f'\nresource "{kind}" "{own_label}" {{\n{nested_block}{_write_fields(fields, "  ")}}}\n'


def _write_fields(fields: Mapping[str, str], indent: str) -> str:
    width = max(map(len, fields))
    return "".join(f"{indent}{name:{width}} = {value}\n" for name, value in fields.items())


def _write_map(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a map of Terraform's with these keys, whose values are expressions already."""
    return "{\n" + "".join(f"    {quote_text(key)} = {value}\n" for key, value in pairs) + "  }"


def make_label(*names: str) -> str:
    """Return the label of a resource: its name if Terraform takes it, else one that is derived from its names."""
    if len(names) == 1 and LABEL.fullmatch(names[0]):
        return names[0]
    readable = re.sub("[^A-Za-z0-9]+", "_", "_".join(names)).strip("_")[:KEPT_CHARACTERS]
    start = "" if readable[:1].isalpha() else "_"
    return f"{start}{readable}_{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]}"


def quote_text(value: str) -> str:
    """Return a text as a Terraform string, in which `${` and `%{` are escaped."""
    quoted = "".join(QUOTED.get(each) or (each if each.isprintable() else _escape_character(each)) for each in value)
    return '"' + quoted.replace("${", "$${").replace("%{", "%%{") + '"'


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
