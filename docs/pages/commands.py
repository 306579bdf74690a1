"""The text of the site's page commands.md, generated from the help texts of all commands.

`python3 -m docs.pages.commands` prints it; docs/conf.py writes it when the site is built.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from minibroker.cli.main import main

WIDTH = 96
PREAMBLE = """\
# Commands

The help texts of all commands, as `minibroker COMMAND --help` prints them. This is true of all of them:

- A server is HOST:PORT; without a port, it is 9092. Without `--bootstrap-server`, the server is the one in `--client`
  or `--command-config`, else in the variable `MINIBROKER_BOOTSTRAP_SERVER`, else 127.0.0.1:9092.
- A command waits 5 seconds for a connection, and 30 for an answer; `--timeout` changes both. Ctrl-C ends it at once,
  with status 130. It is the usual end of `serve`, `proxy` and `explore`: they close their files, and their status is 0.
- `--log-level debug` shows each connection, request and answer on stderr: names, versions, sizes, times and errors, but
  nothing of what they contain.
- Errors are one line on stderr. The status is 1 for an operation that failed, and 2 for a mistake on the command line
  or if there is no server.
- Short options mean the same in all commands, and are kcat's where it has the option: `-b` the server, `-t` a topic,
  `-g` a group, `-p` a partition or their number, `-o` an offset, `-c` a number of records, `-K` the separator of keys,
  `-H` a header, `-z` the compression, `-X` a client setting, `-J` JSON.
- Times in tables are in UTC. With `--json`, they are milliseconds since 1970.
- Shells complete commands, options, topics, groups, messages and settings: see `minibroker completion`.

Generated from the commands, by `python3 -m docs.pages.commands`.
"""


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield the name of each command, such as `minibroker topics list`, and its help; groups before their commands."""
    yield from _of(main, None, "minibroker")


def markdown() -> str:
    """Return the text of the page."""
    sections = (
        f"\n{'#' * min(3, max(2, len(name.split())))} {name}\n\n```text\n{text}\n```\n" for name, text in help_texts()
    )
    return PREAMBLE + "".join(sections)


def _of(command: click.Command, parent: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command, parent, name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=["-h", "--help"]
    )
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _of(found, context, each)


if __name__ == "__main__":
    print(markdown(), end="")
