"""DescribeClientQuotas and AlterClientQuotas: limits for users, client ids and addresses (KIP-546, KIP-612).

Behaviour: quotas are checked and recorded in the metadata log, and found by filters. Each entity of a request succeeds
or fails by itself. An entity that is listed twice, or has a key twice, is refused.

Versions: 1 of both has flexible fields.

Not implemented: host names for the entity type ip, which would need name resolution.
"""

from __future__ import annotations

from collections import Counter

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.image import QuotaEntity
from minibroker.broker.quotas.client_quotas import (
    EntityFilter,
    check_quota_value,
    make_quota_record,
    parse_quota_entity,
)
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    ALTER_CLUSTER_CONFIGS,
    DENIAL_MESSAGES,
    DESCRIBE_CLUSTER_CONFIGS,
    ResourceType,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import ClientQuotaRecord
from minibroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from minibroker.protocol.steps import apply_to_items_in_steps, count_items_in_steps

DescribedQuotas = DescribeClientQuotasResponse.EntryData
RequestedQuotas = AlterClientQuotasRequest.EntryData
AlteredQuotas = AlterClientQuotasResponse.EntryData


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS)
async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    quotas = context.cluster.image.quotas
    components = [(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        context.authorize(DESCRIBE_CLUSTER_CONFIGS)
        matching = EntityFilter(components, strict=request.strict).iterate_matching_entities(quotas)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity in list(matching):
        if entity in quotas:  # another request may have removed it since the step before
            entries.append(_describe_quota_entity(entity, quotas[entity]))
        await pause()
    return DescribeClientQuotasResponse(entries=entries)


def _describe_quota_entity(entity: QuotaEntity, values: dict[str, float]) -> DescribedQuotas:
    return DescribedQuotas(
        entity=[
            DescribedQuotas.EntityData(entity_type=kind, entity_name=name)
            for kind, name in _sort_entity_by_type(entity)
        ],
        values=[DescribedQuotas.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


def _sort_entity_by_type(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    return sorted(entity, key=lambda part: part[0])


@handles(ApiKey.ALTER_CLIENT_QUOTAS, durable=True)
async def alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    named = await run_in_slices(apply_to_items_in_steps(_parse_quota_entity, request.entries))
    counts = await run_in_slices(count_items_in_steps(named))
    answers = {}
    for parts, entry in zip(named, request.entries, strict=True):
        await pause()
        answer = answers[parts] = AlteredQuotas(error_message=None)
        answer.entity = await run_in_slices(
            apply_to_items_in_steps(_encode_entity_type_and_name, _sort_entity_by_type(parts))
        )
        try:
            context.authorize(ALTER_CLUSTER_CONFIGS, message=DENIAL_MESSAGES[ResourceType.CLUSTER])
            if counts[parts] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_format_quota_entity(parts)}")
            decided = _make_quota_records(context, entry)
            if decided and not request.validate_only:
                context.cluster.commit_metadata_records(decided)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return AlterClientQuotasResponse(entries=list(answers.values()))


def _encode_entity_type_and_name(type_and_name: tuple[str, str | None]) -> AlteredQuotas.EntityData:
    return AlteredQuotas.EntityData(entity_type=type_and_name[0], entity_name=type_and_name[1])


def _parse_quota_entity(entry: RequestedQuotas) -> QuotaEntity:
    """Return the entity of an entry, which need not exist. If a type is listed twice, the last one counts."""
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


def _format_quota_entity(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in _sort_entity_by_type(entity))


def _make_quota_records(context: RequestContext, entry: RequestedQuotas) -> list[ClientQuotaRecord]:
    """Return the records for the metadata log. Raises KafkaError(INVALID_REQUEST)."""
    entity, limits = parse_quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
    keys = Counter(change.key for change in entry.ops)
    repeated = next((key for key, count in keys.items() if count > 1), None)
    if repeated is not None:
        message = f"Duplicate quota key {repeated} not updating quota for this entity {_format_quota_entity(entity)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    current = context.cluster.image.quotas.get(entity, {})
    decided = []
    for change in entry.ops:
        if not change.remove:
            check_quota_value(limits, change.key, change.value)
        is_news = change.key in current if change.remove else current.get(change.key) != change.value
        if is_news:
            decided.append(make_quota_record(entity, change.key, None if change.remove else change.value))
    return decided
