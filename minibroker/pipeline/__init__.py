"""The log as tables: of Arrow in this process, by `open`, and of Spark; and the jobs on them.

Needs the extra `minibroker[arrow]`, and for Spark `minibroker[spark]`. Nothing is imported here, so that each part is
only imported where it is used. The broker does not need the pipeline, and the pipeline does not need the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from os import PathLike

    from minibroker.pipeline.log_opening import Log, Place
    from minibroker.pipeline.log_source import Mode
    from minibroker.pipeline.options import IsolationLevel

REMEDY: Final = "the pipeline needs the extra arrow: python3 -m pip install pyarrow numpy"


def open(
    where: str | PathLike[str],
    topics: str | Sequence[str] = (),
    *,
    partitions: Sequence[int] = (),
    start: Place = None,
    end: Place = None,
    isolation: IsolationLevel = "read_uncommitted",
    mode: Mode = "FAILFAST",
    client: Mapping[str, str] | None = None,
) -> Log:
    """Return the log in a directory, at a URL, or of a broker (`HOST:PORT`), with these topics; by default all.

    `start` and `end` (exclusive) are offsets or times, `client` the settings of Kafka's client. Raises ImportError
    without the extra.
    """
    try:
        from minibroker.pipeline.log_opening import Log
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(REMEDY, name=error.name) from error

    names = (topics,) if isinstance(topics, str) else tuple(topics)
    return Log(str(where), names, tuple(partitions), start, end, isolation, mode, client or {})
