"""Batches of format 2 whose records are stored without their unused attributes byte (KIP-931, which was discarded).

Bit 7 of a batch's attributes says that the byte is missing in each of its records. Readers get the records with the
byte from `get_uncompressed_payload`. Only topics with the setting `record.attributes.elide` store such batches.

    with     |length|attributes 0|timestamp delta|offset delta|key ...|value ...|headers ...|
    without  |length - 1|timestamp delta|offset delta|key ...|value ...|headers ...|
"""

from __future__ import annotations

from minibroker.protocol.records.batch import CONTROL_BIT, ELIDED_BIT, MAGIC, BatchHeader
from minibroker.protocol.records.building import assemble_batch_in_steps
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.payload import iterate_payload_chunks
from minibroker.protocol.records.restarting import HasAttributes, elide_attributes_of_chunks
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import Steps, run_all_steps


def elide_attributes(batch: Bytes, header: BatchHeader, level: int | None = None) -> bytearray | None:
    """Return the batch without the attributes of its records, in the same codec; None if it must stay as it is.

    That is a batch without attributes, one of another format, a control batch, or one with an attribute other than 0,
    which would be lost. Raises what reading the records raises.
    """
    return run_all_steps(elide_attributes_in_steps(batch, header, level))


def elide_attributes_in_steps(batch: Bytes, header: BatchHeader, level: int | None = None) -> Steps[bytearray | None]:
    """Return the batch as `elide_attributes` does, in steps."""
    if header.magic != MAGIC or header.attributes & (ELIDED_BIT | CONTROL_BIT) or header.record_count == 0:
        return None
    chunks = elide_attributes_of_chunks(iterate_payload_chunks(batch, 0, header), header.record_count)
    changed = header._replace(attributes=header.attributes | ELIDED_BIT)
    try:
        return (yield from assemble_batch_in_steps(changed, compress_chunks(header.compression, chunks, level)))
    except HasAttributes:
        return None


def restore_attributes_in_steps(batch: Bytes, header: BatchHeader, level: int | None = None) -> Steps[bytearray]:
    """Return, in steps, the batch with the attributes of its records restored. Raises what reading them raises."""
    chunks = compress_chunks(header.compression, iterate_payload_chunks(batch, 0, header), level)
    changed = header._replace(attributes=header.attributes & ~ELIDED_BIT)
    return (yield from assemble_batch_in_steps(changed, chunks))
