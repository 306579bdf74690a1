"""`kafka-configs` says what Kafka's own tool says: its output was compared with that of Apache Kafka 4.3."""

from __future__ import annotations

from tests.cases import for_each
from tests.cli.conftest import Run

TOPIC = ("--entity-type", "topics", "--entity-name", "configured")


def test_topic_configs_are_set_shown_and_unset(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "configured")
    changed = tool("kafka-configs", "--alter", *TOPIC, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]")
    assert (changed.exit_code, changed.stdout) == (0, "Completed updating config for topic configured.\n")
    assert tool("kafka-configs", "--describe", "--topic", "configured").stdout.splitlines() == [
        "Dynamic configs for topic configured are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
    ]
    assert tool("kafka-configs", "--alter", *TOPIC, "--delete-config", "retention.ms, cleanup.policy").exit_code == 0
    assert len(tool("kafka-configs", "--describe", *TOPIC).stdout.splitlines()) == 1
    everything = tool("kafka-configs", "--describe", *TOPIC, "--all").stdout.splitlines()
    assert everything[0] == "All configs for topic configured are:" and len(everything) > 20


def test_configs_of_one_and_of_all_brokers_are_set_and_shown(tool: Run) -> None:
    one = tool("kafka-configs", "--alter", "--broker", "1", "--add-config", "log.retention.ms=7000")
    assert one.stdout == "Completed updating config for broker 1.\n"
    told = tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1").stdout
    assert told.startswith("Dynamic configs for broker 1 are:\n")
    assert "  log.retention.ms=7000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=7000" in told
    default = ("--entity-type", "brokers", "--entity-default")
    changed = tool("kafka-configs", "--alter", *default, "--add-config", "log.cleaner.threads=2")
    assert changed.stdout == "Completed updating default config for brokers in the cluster.\n"
    told = tool("kafka-configs", "--describe", *default).stdout
    assert told.startswith("Default configs for brokers in the cluster are:\n")
    assert "  log.cleaner.threads=2 " in told and "log.retention.ms" not in told


@for_each(
    ("arguments", "said"),
    [
        (("--describe",), "needs --entity-type topics or brokers"),
        (("--alter", "--topic", "a"), "--alter needs a name, and --add-config or --delete-config"),
        (("--alter", "--topic", "none", "--add-config", "a=b"), "there is no topic none"),
        (("--alter", "--topic", "a", "--add-config", "x"), "'x' is not NAME=VALUE"),
        (("--describe", "--broker", "x"), "must be a valid integer broker id"),
        (("--describe", "--entity-type", "users"), "'users' is not one of 'topics', 'brokers'"),
    ],
)
def test_invalid_arguments_of_kafka_configs_are_rejected(tool: Run, arguments: tuple[str, ...], said: str) -> None:
    result = tool("kafka-configs", *arguments)
    assert result.exit_code != 0 and said in result.stderr
