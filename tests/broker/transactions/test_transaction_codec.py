"""The records of `__transaction_state`: their bytes are those that the declared messages have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.coordination.coordinator_logs import encode_record_entry
from minibroker.broker.metadata.partitions import TRANSACTIONS_TOPIC
from minibroker.broker.transactions.transaction import Transaction, TransactionState
from minibroker.broker.transactions.transaction_codec import (
    PARTITIONS_KEPT,
    encode_transaction,
    make_transaction_log_value,
    parse_transaction,
)
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.records.internal import decode_internal_record

LONGS = st.integers(-1, (1 << 63) - 1)
SHORTS = st.integers(-1, (1 << 15) - 1)
PARTITIONS = st.frozensets(
    st.tuples(st.sampled_from(("t", "topic-\u00e4", "u" * 200)), st.integers(0, 300)), max_size=8
)
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(max_size=300),
    producer_id=LONGS,
    timeout_ms=st.integers(0, (1 << 31) - 1),
    last_update_ms=LONGS,
    producer_epoch=SHORTS,
    previous_producer_id=st.sampled_from((-1, 0, 5)),
    next_producer_id=st.sampled_from((-1, 0, 5)),
    state=st.sampled_from(list(TransactionState)),
    partitions=PARTITIONS,
    start_ms=LONGS,
    client_version=st.integers(0, 2),
)


@given(TRANSACTIONS, st.integers(0, 2))
def test_a_transaction_is_encoded_as_its_log_key_and_value_messages(transaction: Transaction, version: int) -> None:
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    assert encode_transaction(transaction, version) == encode_record_entry(
        key, make_transaction_log_value(transaction), min(version, 1)
    )


def test_a_transaction_of_many_partitions_is_decoded_unchanged() -> None:
    partitions = frozenset(("t", index) for index in range(PARTITIONS_KEPT + 1))
    transaction = Transaction("tx", 1, 1000, 5, 0, state=TransactionState.ONGOING, partitions=partitions, start_ms=5)
    key, value = decode_internal_record(TRANSACTIONS_TOPIC, *encode_transaction(transaction))
    assert isinstance(key.message, TransactionLogKey)
    assert value is not None and isinstance(value.message, TransactionLogValue)
    parsed = parse_transaction(key.message, value.message)
    assert (parsed.transactional_id, make_transaction_log_value(parsed)) == (
        "tx",
        make_transaction_log_value(transaction),
    )
