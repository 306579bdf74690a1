"""Delegation tokens: a connection that has not authenticated may not ask for any."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.broker.harness import Harness, served_versions

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("version", served_versions(CreateDelegationTokenRequest))
def test_no_token_is_made(harness: Harness, version: int) -> None:
    answer = harness.request(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (answer.error_code, answer.token_id, answer.hmac, answer.max_timestamp_ms) == (NOT_ALLOWED, "", b"", -1)
    assert (answer.principal_type, answer.principal_name) == ("User", "ANONYMOUS")


def test_the_owner_that_is_asked_for_is_told(harness: Harness) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=1)
    answer = harness.request(request, 3)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "ANONYMOUS")


@pytest.mark.parametrize("version", served_versions(RenewDelegationTokenRequest))
def test_none_is_renewed_expired_or_described(harness: Harness, version: int) -> None:
    renewed = harness.request(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
    expired = harness.request(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), version)
    described = harness.request(DescribeDelegationTokenRequest(owners=None), version)
    assert [one.error_code for one in (renewed, expired, described)] == [NOT_ALLOWED] * 3
    assert (renewed.expiry_timestamp_ms, expired.expiry_timestamp_ms, described.tokens) == (-1, -1, [])
