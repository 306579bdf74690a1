"""A handover as a shell script that calls Kafka's own `kafka-*.sh`.

Names may contain anything: each argument is quoted for the shell, and given as `--option=value`, so that none is taken
for an option. What the tools cannot take (a NUL, blanks around a name in an ACL) is left out, and the script says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from shlex import quote
from typing import Final

from minibroker.cli.handover.handover_state import DynamicConfigs, HandoverState, HandoverTopic
from minibroker.cli.security.acls_command import ListedAcl
from minibroker.cli.security.quotas_command import DEFAULT, ListedQuota
from minibroker.cli.security.users_command import ListedUser
from minibroker.protocol.legible import escape_unprintable

HEAD: Final = r"""#!/bin/sh
# Written by `minibroker handover` from {source}.
#
#   BOOTSTRAP_SERVER=kafka:9092 sh handover.sh            {parts}
#   BOOTSTRAP_SERVER=kafka:9092 sh handover.sh topics     one of them, or several
#   BOOTSTRAP_SERVER=kafka:9092 sh handover.sh offsets    the offsets of groups, after the records
#
# KAFKA_BIN is the directory of Kafka's scripts, if they are not on the PATH; COMMAND_CONFIG a properties file for them;
# REPLICATION_FACTOR that of all topics, if it is not to be the one they have. Passwords are read from the standard
# input, a line for each user. What exists stays as it is, but configs, passwords, quotas and offsets are set.
# Names that are not ASCII need a locale with UTF-8, as Java reads its arguments by it.
set -eu
: "${{BOOTSTRAP_SERVER:?is not set}}"
umask 077
file=$(mktemp)
trap 'rm -f "$file"' EXIT

tool() {{
    script=$1.sh
    shift
    "${{KAFKA_BIN:+$KAFKA_BIN/}}$script" --bootstrap-server="$BOOTSTRAP_SERVER" \
        ${{COMMAND_CONFIG:+--command-config="$COMMAND_CONFIG"}} "$@" < /dev/null
}}

lines() {{
    printf '%s\n' "$@" > "$file"
}}

# Reads the password of a user, and sets it for the mechanisms that follow, each with its iterations.
credential() {{
    printf 'Password of %s: ' "$2" >&2
    IFS= read -r password
    if [ -z "$password" ] || [ -n "$(printf %s "$password" | LC_ALL=C tr -d ' -~')" ]; then
        echo 'this script takes passwords of printable ASCII only' >&2
        exit 1
    fi
    user=$1
    shift 2
    while [ $# -gt 0 ]; do
        lines "$1=iterations=$2,password=$(printf %s "$password" | sed 's/\\/\\\\/g')"
        tool kafka-configs --alter --user="$user" --add-config-file="$file"
        shift 2
    done
}}
"""
FOOT: Final = """
for part in ${{*:-{parts}}}; do
    case $part in
    {all_parts}) "$part" ;;
    *)
        echo "there is no part $part" >&2
        exit 2
        ;;
    esac
done
"""
PARTS: Final = ("topics", "configs", "users", "acls", "quotas")
# What `kafka-acls` knows of an operation and a type of resource by other names than Kafka's protocol.
RESOURCES: Final = {
    "topic": "topic",
    "group": "group",
    "cluster": "cluster",
    "transactional_id": "transactional-id",
    "delegation_token": "delegation-token",
    "user": "user-principal",
}
BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))  # what Java's trim cuts off
# The operations that all tools for ACLs have, by the names that they share.
OPERATIONS: Final = {
    *("All", "Alter", "AlterConfigs", "ClusterAction", "Create", "Delete", "Describe", "DescribeConfigs"),
    *("IdempotentWrite", "Read", "Write"),
}
ENTITIES: Final = (("user", "user"), ("client_id", "client"), ("ip", "ip"))
AddLeftOutNote = Callable[[str], None]


def make_shell_script(state: HandoverState) -> str:
    """Return a shell script that creates all that `state` has in another cluster, by Kafka's tools."""
    left_out_notes: list[str] = list(state.left_out)
    bodies = {
        "topics": [line for topic in state.topics for line in _write_topic_commands(topic)],
        "configs": [line for each in state.configs for line in _write_configs(each, left_out_notes.append)],
        "users": list(_write_users(state.users, left_out_notes.append)),
        "acls": list(_write_acls(state.acls, left_out_notes.append)),
        "quotas": list(_write_quotas(state.quotas, left_out_notes.append)),
        "offsets": list(_write_offsets(state.offsets, left_out_notes.append)),
    }
    functions = "".join(f"\n{name}() {{\n    :\n{_indent_lines(lines)}}}\n" for name, lines in bodies.items())
    notes = "".join(f"# Left out: {escape_unprintable(note)}\n" for note in left_out_notes)
    head = HEAD.format(source=escape_unprintable(state.source), parts=", ".join(PARTS))
    foot = FOOT.format(parts=" ".join(PARTS), all_parts=" | ".join(bodies))
    return head.replace("set -eu\n", f"{notes}set -eu\n", 1) + functions + foot


def _indent_lines(lines: Iterable[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


def _write_tool_call(script: str, *options: str, **values: str) -> str:
    """Return the call of a tool; `options` stay as they are, `values` are quoted."""
    named = [f"--{name.replace('_', '-')}={quote(value)}" for name, value in values.items()]
    return " ".join(["tool", script, *options, *named])


def _write_lines(texts: Iterable[str]) -> str:
    """Return the command that writes these lines to the file `$file`."""
    return " \\\n        ".join(["lines", *map(quote, texts)])


def _write_topic_commands(topic: HandoverTopic) -> Iterator[str]:
    """Yield the commands for a topic; configs that `kafka-topics` would split at `=` are set after its creation."""
    simple = {name: value for name, value in topic.configs.items() if value and "=" not in value}
    sizes = f'--partitions={topic.partitions} --replication-factor="${{REPLICATION_FACTOR:-{topic.replicas}}}"'
    configs = [f"--config={quote(f'{name}={value}')}" for name, value in simple.items()]
    yield _write_tool_call("kafka-topics", "--create --if-not-exists", sizes, *configs, topic=topic.name)
    others = {name: value for name, value in topic.configs.items() if name not in simple}
    if others:
        yield from _write_add_config("--topic", topic.name, others)


def _write_configs(configs: DynamicConfigs, add_left_out_note: AddLeftOutNote) -> Iterator[str]:
    """Yield the commands that set the configs of a resource; note one whose name no tool takes as left out."""
    if not configs.name:
        yield from _write_add_config("--broker-defaults", None, configs.configs)
    elif _can_be_argument(configs.name):
        yield from _write_add_config(f"--{configs.kind}", configs.name, configs.configs)
    else:
        add_left_out_note(f"the configs of {configs.resource_description}, whose name no tool takes")


def _write_add_config(option: str, name: str | None, configs: Mapping[str, str]) -> Iterator[str]:
    """Yield the commands that set configs of one entity, or of the default one (None), by a file."""
    yield _write_lines(f"{key}={_escape_property(value)}" for key, value in configs.items())
    entity = option if name is None else f"{option}={quote(name)}"
    yield f'tool kafka-configs --alter {entity} --add-config-file="$file"'


def _escape_property(value: str) -> str:
    """Return a value for a file of properties, which Java reads as ISO 8859-1."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = re.sub("^[ \t\f]", lambda found: "\\" + found[0], text)
    return "".join(each if each.isascii() else _escape_utf16(each) for each in text)


def _escape_utf16(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _can_be_argument(name: str) -> bool:
    """Return whether a name can be an argument of a process, and is not empty, which the tools refuse."""
    return bool(name) and "\0" not in name


def _write_users(users: Iterable[ListedUser], add_left_out_note: AddLeftOutNote) -> Iterator[str]:
    """Yield a command for each SCRAM user; note those whose names no tool takes as left out."""
    for name, rows in groupby(users, key=lambda row: row.user):
        mechanisms = " ".join(f"{row.mechanism} {row.iterations}" for row in rows)
        if _can_be_argument(name):
            yield f"credential {quote(name)} {quote(escape_unprintable(name))} {mechanisms}"
        else:
            add_left_out_note(f"the user {name!r}, whose name no tool takes")


def _write_acls(acls: Iterable[ListedAcl], add_left_out_note: AddLeftOutNote) -> Iterator[str]:
    """Yield a call for all operations of a principal, from a host, on a resource."""
    for acl, rows in groupby(acls, key=lambda row: row._replace(operation="")):
        given = acl.name, acl.principal, acl.host
        operations = [row.operation for row in rows]
        if not all(_can_be_argument(text) and text == text.strip(BLANKS) for text in given):
            add_left_out_note(
                f"the ACL of {acl.principal!r} on the {acl.resource} {acl.name!r}: kafka-acls cuts off blanks"
            )
            continue
        effect = acl.permission
        of_cluster = acl.resource == "cluster"
        resource = "--cluster" if of_cluster else f"--{RESOURCES[acl.resource]}={quote(acl.name)}"
        yield _write_tool_call(
            "kafka-acls",
            "--add",
            resource,
            f"--resource-pattern-type={acl.pattern}",
            *(f"--operation={convert_to_pascal_case(each)}" for each in operations),
            **{f"{effect}-principal": acl.principal, f"{effect}-host": acl.host},
        )


def convert_to_pascal_case(name: str) -> str:
    """Return the name of an operation as Kafka's tools and others take it, such as DescribeConfigs."""
    return "".join(word.capitalize() for word in name.split("_"))


def _write_quotas(quotas: Iterable[ListedQuota], add_left_out_note: AddLeftOutNote) -> Iterator[str]:
    """Yield a call for all quotas of an entity."""
    for entity, rows in groupby(quotas, key=lambda row: row[:3]):
        named = dict(zip((option for _, option in ENTITIES), entity, strict=True))
        limits = ",".join(f"{row.quota}={row.value}" for row in rows)
        if not all(name is None or _can_be_argument(name) for name in entity):
            add_left_out_note(f"the quotas {limits} of {entity!r}, whose name no tool takes")
            continue
        options = [
            f"--{option}-defaults" if name == DEFAULT else f"--{option}={quote(name)}"
            for option, name in named.items()
            if name is not None
        ]
        yield _write_tool_call("kafka-configs", "--alter", *options, f"--add-config={limits}")


def _write_offsets(
    offsets: Mapping[str, Mapping[tuple[str, int], int]], add_left_out_note: AddLeftOutNote
) -> Iterator[str]:
    """Yield the commands that set the offsets of each group; note groups whose names no tool takes as left out."""
    for group, positions in offsets.items():
        if _can_be_argument(group):
            yield _write_lines(f"{topic},{partition},{offset}" for (topic, partition), offset in positions.items())
            yield _write_tool_call(
                "kafka-consumer-groups", "--reset-offsets", '--from-file="$file"', "--execute", group=group
            )
        else:
            add_left_out_note(f"the offsets of the group {group!r}, whose name no tool takes")
