"""Record batches and records: layouts, compression, control records, validation.

Several modules walk over the records of a batch of format 2, since none does what another is for. The times are those
of one record of some 100 bytes, in Python:

    record      4 us     objects, and the reason why a record is malformed
    slicing     0.4 us   where records and keys are, without objects, for compaction; it trusts lengths
    scanning    0.5 us   whether all records are good, without objects, for each produced batch; 0.03 us where their
                         layouts are equal, and for any where `strides`, its innermost loop, is compiled
    streaming   5 us     objects without headers one at a time, in steps: a batch may be larger than the memory
    restarting           records with other offsets, timestamps or attributes, whose rest is copied as it is

`validation` has the rules of a produced batch, on `scanning`. `windows` has the piece of decompressed records on which
`streaming`, `restarting` and `validation` work in steps.
"""
