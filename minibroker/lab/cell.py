"""A cell of Python: the reader's own code, run in the worker as a REPL runs it, with `await` at the top."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import traceback
from typing import Any, Final

from minibroker.client.asynchronous import AsyncClient
from minibroker.client.connection_settings import ClientSettings
from minibroker.testing.broker import Broker

FILE: Final = "<cell {}>"
MOST_CHARACTERS: Final = 100_000
CLIENT_ID: Final = "python"
ENDS: Final = (SystemExit, KeyboardInterrupt, asyncio.CancelledError)  # of a program or a task: here, only of the run


class CodeCell:
    """The names that the reader's code has: `broker`, `client`, `Client`, and its own, which stay."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._run = 0
        client = self.make_client()
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "broker": broker,
            "client": client,
            "Client": self.make_client,
        }

    def make_client(self, client_id: str = CLIENT_ID) -> AsyncClient:
        """Return a client of `minibroker.client`, which connects when it first asks."""
        settings = {"bootstrap.servers": self._broker.bootstrap_servers, "client.id": client_id}
        return AsyncClient(ClientSettings(settings))

    async def run(self, code: str) -> str:
        """Run code; return what it prints, the value of its last expression, and its error, as text."""
        self._run += 1
        name = FILE.format(self._run)
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                value = await self._evaluate_last_expression(code, name)
                if value is not None:
                    print(repr(value))
            except (Exception, *ENDS) as error:
                if _is_task_cancelled():
                    raise
                print(_describe_error(error, name))
        text = said.getvalue()
        more = len(text) - MOST_CHARACTERS
        return text if more <= 0 else f"{text[:MOST_CHARACTERS]}\n… and {more:,} more characters"

    async def _evaluate_last_expression(self, code: str, name: str) -> Any:
        """Return the value of the last statement, if it is an expression."""
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        await self._run_code_and_await_result(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is None:
            return None
        return await self._run_code_and_await_result(
            compile(ast.Expression(last.value), name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[attr-defined]
        )

    async def _run_code_and_await_result(self, code: Any) -> Any:
        result = eval(code, self.names)
        return await result if inspect.iscoroutine(result) and code.co_flags & inspect.CO_COROUTINE else result


def _is_task_cancelled() -> bool:
    """Return whether somebody cancels the run itself, rather than a task that its code awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _describe_error(error: BaseException, name: str) -> str:
    """Return an error with the lines of the cell that led to it, without those of this file."""
    told = traceback.TracebackException.from_exception(error)
    first = next((at for at, each in enumerate(told.stack) if each.filename == name), len(told.stack))
    del told.stack[:first]
    return "".join(told.format()).rstrip()
