"""A process that rewrites a directory and never ends by itself after a number of segments: to be killed there."""

from __future__ import annotations

import sys
import time

from minibroker.pipeline.engines import LocalEngine
from minibroker.pipeline.rewriting import directory
from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings

work = directory.SegmentRewriter.rewrite_segment


def main(source: str, target: str, count: int) -> None:
    """Rewrite `count` segments of `source`, and then wait in the middle of the next one."""
    left = count

    def run(self: directory.SegmentRewriter) -> object:
        nonlocal left
        written = work(self)
        if left == 0:
            print("ready", flush=True)
            time.sleep(600)
        left -= 1
        return written

    directory.SegmentRewriter.rewrite_segment = run  # type: ignore[assignment, method-assign]
    directory.rewrite_directory(source, target, RewriteSettings(batch_bytes=300), engine=LocalEngine(1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
