"""minibroker with one of its fast paths put aside: `slower.py PATH serve ...`.

It takes minibroker's own words behind the first; only the rows that ask what a path brings run it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from minibroker.broker.handlers import commit_template, fetch, produce
from minibroker.broker.requests.dispatch import AnswerCache
from minibroker.broker.requests.served import SERVED
from minibroker.cli.main import main
from minibroker.protocol.apis import ApiKey


def _nothing(*_: Any) -> None: ...


def without_produce_template() -> None:
    produce.remember_produce_template = produce.remember_refusal_template = _nothing


def without_commit_template() -> None:
    commit_template.remember_commit_template = _nothing


def without_lasting_answers() -> None:
    AnswerCache.find_cached_answer = _nothing  # type: ignore[method-assign]


def without_plain_produce() -> None:
    without_produce_template()
    SERVED[ApiKey.PRODUCE].handler = produce._produce_now_or_in_steps


def without_plain_fetch() -> None:
    SERVED[ApiKey.FETCH].handler = fetch._fetch_in_steps


PATHS: dict[str, Callable[[], None]] = {
    name.removeprefix("without_"): put_aside for name, put_aside in globals().items() if name.startswith("without_")
}

if __name__ == "__main__":
    PATHS[sys.argv.pop(1)]()
    main()
