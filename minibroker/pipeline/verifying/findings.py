"""The kinds of findings of `verify`: the code, the check that finds it, its severity, and what it means.

The other files of this package find them. The table in docs/pipeline.md is made from this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

Severity = Literal["error", "warning", "note"]

MAX_OF_A_KIND = 1000  # in one file: more are not useful, and a file of garbage has millions


class FindingKind(NamedTuple):
    """A kind of finding. Errors and warnings need repair, notes do not."""

    code: str
    check: str
    severity: Severity
    meaning: str


class Finding(NamedTuple):
    """One finding. `file` is relative to the log directory, `position` is in bytes; -1 means none."""

    topic: str
    partition: int
    file: str
    offset: int
    position: int
    kind: str
    severity: str
    detail: str


# Each check can be switched on or off. The last three are the slowest: they read, decompress and compare all records.
CHECKS: Final = {
    "layout": "whether batches follow each other without gaps: sizes, magic bytes, the end of the file",
    "offsets": "the order of offsets, within segments and between them",
    "epochs": "leader epochs of batches, and leader-epoch-checkpoint",
    "index": ".index files against the log",
    "timeindex": ".timeindex files against the log",
    "producers": "epochs and sequence numbers of each producer id",
    "transactions": "markers, open transactions, .txnindex files",
    "snapshots": ".snapshot files, by themselves and against the log",
    "checkpoints": "the checkpoint files of the directory, and the topic ids in partition.metadata",
    "crc": "the checksum of each batch",
    "records": "the records in each batch against its header",
    "compaction": "what the cleaner guarantees for the part that it has cleaned",
}

# The kinds of findings of each check: code, severity and meaning.
_FOUND_BY: Final[dict[str, tuple[tuple[str, Severity, str], ...]]] = {
    "layout": (
        ("length", "error", "a batch's length is impossible, or does not lead to the next batch"),
        ("magic", "error", "a batch's magic byte is not 0, 1 or 2, or does not match its checksum"),
        ("torn-tail", "error", "a file ends within a batch; in the last segment, recovery truncates it"),
        ("vanished", "note", "a segment was removed during the check: a broker is using the directory"),
    ),
    "offsets": (
        ("below-segment", "error", "a batch begins below the offset in its file's name"),
        ("offset-order", "error", "a batch begins at a lower offset than the previous batch"),
        ("overlap", "error", "a batch begins with offsets that the previous batch contains"),
        ("segment-overlap", "error", "a segment begins with offsets that the previous segment contains"),
        ("gap", "error", "offsets are missing in a log that is not compacted"),
    ),
    "epochs": (
        ("leader-epoch-regression", "error", "a batch has an older leader epoch than an earlier batch"),
        ("leader-epoch-checkpoint", "error", "leader-epoch-checkpoint contradicts the batches"),
        ("leader-epoch-late", "note", "leader-epoch-checkpoint begins behind the log's start, as after a kill"),
        ("log-start", "error", "the first segment is lost: epochs or a checkpoint begin before the log"),
    ),
    "index": (
        ("index-missing", "warning", "a closed segment has no .index file; a start rebuilds it"),
        ("index-order", "error", "the entries of an .index file do not increase, or it ends within one"),
        ("index-position", "error", "an .index entry does not point to the start of a batch"),
        ("index-offset", "error", "an .index entry has another offset than the batch that it points to"),
        ("index-beyond-log", "error", "an .index entry points beyond the end of the log file"),
    ),
    "timeindex": (
        ("timeindex-missing", "warning", "a closed segment has no .timeindex file; a start rebuilds it"),
        ("timeindex-order", "error", "a .timeindex file's entries do not increase, or it ends within one"),
        ("timeindex-offset", "error", "a .timeindex entry has an offset that the segment does not have"),
        ("timeindex-timestamp", "error", "a .timeindex entry has another time than its batch"),
        ("timeindex-late", "error", "the log has larger timestamps before a .timeindex entry's offset"),
        ("timeindex-incomplete", "error", "a closed segment has a larger timestamp than its .timeindex"),
    ),
    "producers": (
        ("epoch-regression", "error", "a producer writes with an older epoch than before"),
        ("sequence-gap", "error", "a producer's batch skips sequence numbers"),
        ("sequence-duplicate", "error", "a producer's batch repeats sequence numbers"),
    ),
    "transactions": (
        ("control-batch", "error", "a control batch is malformed or incomplete"),
        ("marker-without-transaction", "note", "a marker ends a transaction that has no records here"),
        ("coordinator-epoch", "error", "a marker has an older coordinator epoch than an earlier one"),
        ("outside-transaction", "error", "a producer writes outside its open transaction"),
        ("open-transaction", "note", "a transaction is open at the end of the log"),
        ("hanging-transaction", "warning", "a transaction is open, and no coordinator will end it"),
        ("txnindex-entry", "error", "a .txnindex entry is invalid or misplaced"),
        ("txnindex-count", "error", "a .txnindex file does not match aborted-transactions-checkpoint"),
        ("txnindex-missing", "error", "an aborted transaction is not in the .txnindex file"),
        ("txnindex-extra", "error", "a .txnindex entry belongs to no aborted transaction"),
        ("txnindex-first-offset", "error", "a .txnindex entry has another first offset than the log"),
        ("txnindex-stable-offset", "error", "a .txnindex entry has another last stable offset"),
    ),
    "snapshots": (
        ("snapshot", "error", "a .snapshot file has a wrong checksum, version or size"),
        ("snapshot-missing", "warning", "a segment behind batches of producers has no .snapshot file"),
        ("snapshot-state", "error", "a .snapshot file contradicts the log about a producer"),
        ("snapshot-beyond-log", "error", "the offset in a .snapshot file's name is beyond the log's end"),
    ),
    "checkpoints": (
        ("checkpoint", "error", "a checkpoint file is malformed"),
        ("partition-metadata", "error", "partition.metadata is malformed or missing, or has another id"),
        ("meta-properties", "error", "meta.properties is missing or malformed, or of another cluster"),
        ("partition-unknown", "warning", "the metadata log has no such partition: a start sets it aside"),
        ("partition-missing", "error", "a checkpoint names a partition that has no directory"),
        ("checkpoint-beyond-log", "error", "a checkpoint has an offset beyond the log's end"),
    ),
    "crc": (("crc", "error", "the checksum of a batch, or of a message in a wrapper, is wrong"),),
    "records": (
        ("header", "error", "fields of a batch's header contradict each other under a right checksum"),
        ("codec", "error", "the records cannot be decompressed, or their codec is unknown"),
        ("large", "note", "the records decompress to more than 512 MiB, and were not read"),
        ("record", "error", "a record cannot be read, or bytes remain after the last one"),
        ("record-count", "error", "the number of records differs from the header or the offsets"),
        ("record-offset", "error", "the offset of a record does not increase, or is outside its batch"),
        ("max-timestamp", "error", "the largest timestamp in the header differs from the records"),
    ),
    "compaction": (
        ("duplicate-key", "error", "a key occurs twice in the cleaned part"),
        ("keyless-record", "error", "a record without a key is in the cleaned part"),
        ("tombstone-horizon", "note", "a cleaned tombstone has no delete horizon (Kafka before 3.1)"),
    ),
}
KINDS: Final = tuple(
    FindingKind(code, check, severity, meaning)
    for check, kinds in _FOUND_BY.items()
    for code, severity, meaning in kinds
)
# Findings of an earlier group of checks may be the cause of those of a later group: a batch that is cut out leaves a
# gap, the gap breaks sequences, and all later entries of the indexes are wrong.
CAUSES_FIRST: Final = (
    ("layout", "crc", "records"),
    ("offsets",),
    ("epochs", "producers", "transactions", "compaction"),
    ("checkpoints", "snapshots", "index", "timeindex"),
)
BY_CODE: Final = {kind.code: kind for kind in KINDS}


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by partition; in a partition possible causes come first, then by file and place."""
    ranks = {check: rank for rank, checks in enumerate(CAUSES_FIRST) for check in checks}

    def make_sort_key(finding: Finding) -> tuple[object, ...]:
        rank = ranks[BY_CODE[finding.kind].check]
        return finding.topic, finding.partition, rank, finding.file, finding.kind, finding.position, finding.offset

    return sorted(findings, key=make_sort_key)


class Problem(NamedTuple):
    """A finding in one file, before its partition is known."""

    kind: str
    position: int
    offset: int
    detail: str


class Findings:
    """The findings of the chosen checks about the files of one partition, at most `MAX_OF_A_KIND` of a kind in a file.

    `directory` is the partition's, relative to the log directory.
    """

    def __init__(self, topic: str, partition: int, directory: str, checks: frozenset[str]) -> None:
        self._topic, self._partition, self._directory = topic, partition, directory
        self.checks = checks
        self._found: list[Finding] = []
        self._seen: set[tuple[str, str, int, int]] = set()
        self._counts: Counter[tuple[str, str]] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def add_problem(self, file: str, problem: Problem, *, of_directory: bool = False) -> None:
        """Add a problem that was found in a file, unless its check is off, or it was added before.

        `of_directory` means that the file is in the log directory itself.
        """
        kind, position, offset, detail = problem
        known = BY_CODE[kind]
        key = (file, kind, offset, position)
        if known.check not in self.checks or key in self._seen:
            return
        self._counts[file, kind] += 1
        if self._counts[file, kind] > MAX_OF_A_KIND:
            return
        if self._counts[file, kind] == MAX_OF_A_KIND:
            detail += "; further ones of this kind are not listed"
        self._seen.add(key)
        path = f"{self._directory}/{file}" if self._directory and not of_directory else file
        self._found.append(Finding(self._topic, self._partition, path, offset, position, kind, known.severity, detail))

    def add_problems(self, file: str, problems: Iterable[Problem]) -> None:
        """Add the problems that were found in a file."""
        for problem in problems:
            self.add_problem(file, problem)
