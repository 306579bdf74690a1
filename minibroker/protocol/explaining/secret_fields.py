"""Knows which fields hold secrets, so that no explanation shows them."""

from __future__ import annotations

import re
from typing import Final

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.parts import ExplainedPart, PartCursor
from minibroker.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.metadata_records import ConfigRecord, UserScramCredentialRecord
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

_FIELDS: Final[dict[type[Message], tuple[str, ...]]] = {
    AlterUserScramCredentialsRequest: ("salt", "salted_password"),
    UserScramCredentialRecord: ("salt", "stored_key", "server_key"),
    CreateDelegationTokenResponse: ("hmac",),
    RenewDelegationTokenRequest: ("hmac",),
    ExpireDelegationTokenRequest: ("hmac",),
    DescribeDelegationTokenResponse: ("hmac",),
}
# Configs that Kafka keeps as passwords, by the end of their names.
_CONFIGS: Final = re.compile(
    r"(?:password|passphrase|secret|secret\.key|jaas\.config|keystore\.key|certificate\.chain|certificates|test\.users)$",
    re.IGNORECASE,
)
SECRET_MESSAGES: Final = frozenset(
    {
        *_FIELDS,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        AlterConfigsRequest,
        IncrementalAlterConfigsRequest,
        ConfigRecord,
    }
)


def is_secret_field(cursor: PartCursor, part: ExplainedPart, message: type[Message]) -> bool:
    """Return whether the open part of a message is a secret, which for the value of a config its name says."""
    if part.name in _FIELDS.get(message, ()):
        return True
    return part.name == "value" and any(
        each.name == "name" and isinstance(each.value, str) and is_password_config(each.value)
        for each in cursor.list_sibling_parts()
    )


def is_password_config(config: str) -> bool:
    """Return whether the values of a config of this name are never shown."""
    return _CONFIGS.search(config) is not None
