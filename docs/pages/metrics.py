"""The text of the site's page metrics.md, generated from the rows in `broker.monitoring.metrics`.

`python3 -m docs.pages.metrics` prints it; docs/conf.py writes it when the site is built.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.broker.monitoring.metrics import (
    COUNTER,
    GROUP_CHARACTERS,
    HISTOGRAM,
    LAGS_TOLD,
    PARTITIONS_TOLD,
    ROWS,
    MetricRow,
)
from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS

HEAD = ("metric", "type", "labels", "meaning")
PREAMBLE = """\
# Metrics

`minibroker serve --metrics-port 9090` serves the metrics in Prometheus's text format at
`http://127.0.0.1:9090/metrics`, on the host of the first listener. With port 0, the operating system chooses a free
port, and a line on stderr names it. With `--metrics-tls`, they are served [over TLS](security.md#metrics). Without
`--metrics-port`, nothing is counted and no port is opened. With `--control`, the counters continue when the broker is
reset, restored or restarted.

The label `api` is the API's name as in Kafka's documentation, and `code` the name of the error. The buckets of the
histograms end at {buckets} seconds.

With more than {partitions} partitions, those of the oldest topics have their own series, and one more series, with
`(other)` for topic and partition, has the sum of all others. The lags of groups are limited likewise, to {lags}; those
of groups whose ids have more than {characters} characters are among the others. They are computed at each scrape.

Generated from `minibroker/broker/monitoring/metrics.py`, by `python3 -m docs.pages.metrics`.
"""


def rows() -> Iterator[list[str]]:
    """Yield the cells of each metric, under HEAD, in the order of a scrape."""
    for row in ROWS:
        yield [f"`{row.full_name}`", _type(row), ", ".join(row.labels), row.help]


def markdown() -> str:
    """Return the text of the page."""
    bounds = [f"{bound / 1000:g}" for bound in DURATION_BUCKETS_MS]
    buckets = f"{', '.join(bounds[:-1])} and {bounds[-1]}"
    told = {"partitions": f"{PARTITIONS_TOLD:,}", "lags": f"{LAGS_TOLD:,}", "characters": GROUP_CHARACTERS}
    preamble = PREAMBLE.format(buckets=buckets, **told)
    lines = [HEAD, tuple("---" for _ in HEAD), *rows()]
    return preamble + "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _type(row: MetricRow) -> str:
    return "counter" if row.kind is COUNTER else "histogram" if row.kind is HISTOGRAM else "gauge"


if __name__ == "__main__":
    print(markdown(), end="")
