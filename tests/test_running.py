"""A broker run for a test starts, ends and says why it did not; no process stays behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.running import BrokerFailed, running_broker


def test_a_broker_that_does_not_start_reports_the_reason(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokerFailed, match="unknown setting no.such.setting"),
        running_broker(tmp_path, "no.such.setting=1"),
    ):
        pytest.fail("it started")


def test_a_broker_is_stopped_at_the_end_of_its_block_even_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), running_broker(tmp_path) as broker:
        raise KeyError
    assert broker.process.returncode == -signal.SIGKILL


def test_a_broker_can_be_stopped_killed_and_restarted_on_its_data(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        first = broker.process
        broker.restart()
        assert (first.returncode, broker.process.poll()) == (0, None)
        broker.kill()
        assert broker.process.returncode == -signal.SIGKILL
        broker.start()
    assert broker.process.returncode == 0
