"""The types of groups: which one a group has is found out by asking its coordinator for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minibroker.cli.groups.groups_facts import Group, described_classic_group, described_consumer_group
from minibroker.cli.groups.groups_share import described_share_group
from minibroker.cli.groups.groups_streams import described_streams_group

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

TYPES: Final = ("classic", "consumer", "share", "streams")  # by their names in ListGroups


def described(client: Client, group: str) -> Group:
    """Return the group, of any type. Raises `ClientError`."""
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.errors import ErrorCode

    for describe in (described_consumer_group, described_share_group, described_streams_group):
        try:
            return describe(client, group)
        except ClientError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    return described_classic_group(client, group)
