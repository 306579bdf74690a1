"""The cell of Python says what a REPL would say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from minibroker.lab.lab_routes import MOST_CHARACTERS, CodeCell
from minibroker.testing import Broker


@pytest.fixture
async def cell() -> AsyncIterator[CodeCell]:
    async with Broker() as broker:
        cell = CodeCell(broker)
        yield cell
        cell.names["client"].close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('tea')\n1 + 1", "tea\n2\n"),
        ("x = 3", ""),
        ("None", ""),
        ("", ""),
        ("import asyncio\nawait asyncio.sleep(0, 'later')", "'later'\n"),
        ("import asyncio\nfor _ in range(2):\n    await asyncio.sleep(0)\nprint('done')", "done\n"),
    ],
)
async def test_a_cell_prints_its_last_value(cell: CodeCell, code: str, said: str) -> None:
    assert await cell.run(code) == said


async def test_names_assigned_by_a_cell_are_kept_for_the_next_run(cell: CodeCell) -> None:
    await cell.run("def twice(x):\n    return 2 * x")
    assert await cell.run("twice(4)") == "8\n"


async def test_an_error_is_shown_with_lines_of_the_cell_only(cell: CodeCell) -> None:
    await cell.run("def broken():\n    return 1 / 0")
    lines = (await cell.run("broken()")).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "<cell 2>", line 1, in <module>'
    assert "    return 1 / 0" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "import asyncio\ntask = asyncio.ensure_future(asyncio.sleep(9))\ntask.cancel()\nawait task",
            "asyncio.exceptions.CancelledError",
        ),
    ],
)
async def test_exit_ends_only_the_run_of_the_cell(cell: CodeCell, code: str, last: str) -> None:
    assert (await cell.run(code)).splitlines()[-1] == last


async def test_a_cancelled_run_prints_nothing(cell: CodeCell) -> None:
    run = asyncio.ensure_future(cell.run("import asyncio\nawait asyncio.sleep(60)"))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_all_runs_of_a_cell_share_one_client(cell: CodeCell) -> None:
    assert await cell.run("first = client") == ""
    assert await cell.run("client is first") == "True\n"


async def test_a_syntax_error_is_shown_with_its_position(cell: CodeCell) -> None:
    said = await cell.run("x =")
    assert said.splitlines()[0] == '  File "<cell 1>", line 1'
    assert said.splitlines()[-1] == "SyntaxError: invalid syntax"


async def test_the_output_of_a_cell_is_limited(cell: CodeCell) -> None:
    said = await cell.run(f"print('x' * {MOST_CHARACTERS + 10})")
    assert said.endswith("\n… and 11 more characters")
    assert len(said) < MOST_CHARACTERS + 100


async def test_the_client_of_a_cell_gets_responses_of_the_broker(cell: CodeCell) -> None:
    await cell.run("await broker.acreate_topic('orders', 2)")
    code = """
from minibroker.protocol.messages.metadata import MetadataRequest
answer = await client.request(MetadataRequest(topics=None))
[(topic.name, len(topic.partitions)) for topic in answer.topics]
"""
    assert await cell.run(code) == "[('orders', 2)]\n"
