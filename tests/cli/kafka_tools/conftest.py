"""What the tests of Kafka's tools share: a tool that is run in this process, against the broker."""

from __future__ import annotations

import pytest
from click.testing import Result

from minibroker.cli.kafka_tools.__main__ import main
from tests.cli.conftest import Run, runner
from tests.running import RunningBroker


@pytest.fixture
def tool(broker: RunningBroker) -> Run:
    """Run a tool against the broker; the result has exit_code, stdout and stderr."""

    def invoke(*arguments: str, stdin: bytes = b"") -> Result:
        return runner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap_servers], input=stdin)

    return invoke
