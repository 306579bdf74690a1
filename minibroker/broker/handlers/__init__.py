"""One file an API family, each of which registers its own keys and versions with `dispatch.handles`."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "acls",
    "alter_configs",
    "api_versions",
    "client_quotas",
    "cluster",
    "committed_offsets",
    "config_resources",
    "configs",
    "consumer_groups",
    "delegation_tokens",
    "delete_records",
    "elections",
    "features",
    "fetch",
    "find_coordinator",
    "group_listing",
    "group_membership",
    "incremental_configs",
    "log_directories",
    "log_offsets",
    "metadata",
    "offset_deletion",
    "produce",
    "producer_ids",
    "quorum",
    "reassignments",
    "sasl",
    "scram_credentials",
    "topic_partitions",
    "topics",
    "transaction_listing",
    "transactional_offsets",
    "transactions",
    "unregistration",
)


def load() -> None:
    """Import every family, so that its handlers are registered."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
