"""The text of the site's page settings.md, generated from the table in `broker.configs.settings_table`.

`python3 -m docs.pages.settings` prints it; docs/conf.py writes it when the site is built.
"""

from __future__ import annotations

from minibroker.cli.settings_help import HEAD, iterate_setting_rows

PREAMBLE = """\
# Settings

Names, types, defaults and meanings are those of Apache Kafka 4.4, except where the default column says otherwise.
Settings come from `server.properties`, from the environment, and from `--set` on the command line; a later source
overrides an earlier one. In the environment, `MINIBROKER_LOG_SEGMENT_BYTES` is `log.segment.bytes`; two underscores
stand for one, three for a dash. `MINIBROKER_BOOTSTRAP_SERVER` and `MINIBROKER_CONTROL_TOKEN` are no settings: the first
is for the commands that are clients, the second for `--control`.

The column "of a topic" has the topic's name for the setting, for CreateTopics and IncrementalAlterConfigs. "Changes"
says whether IncrementalAlterConfigs can change it while the broker runs. With `--nodes`, each node has its own id,
rack, ports and dynamic settings. A log uses the settings of its leader's node; what exists once per process, such as
the cleaner, uses those of the first node.

The broker does not start with a name that Kafka does not know. It accepts Kafka's settings that have no effect here,
and logs a warning that says why. While it runs, it accepts any name, as Kafka does. DescribeConfigs lists all settings,
and says "No effect" and why where that is so. Of the settings without effect, this table has only those of topics.

Generated from `minibroker/broker/configs/settings_table.py` by
`python3 -m docs.pages.settings`.
"""


def markdown() -> str:
    """Return the text of the page."""
    lines = [HEAD, tuple("---" for _ in HEAD), *map(_mark_names, iterate_setting_rows())]
    return PREAMBLE + "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _mark_names(cells: list[str]) -> list[str]:
    """Mark names as code, and escape what Markdown would interpret."""
    escaped = [cell.replace("|", "\\|").replace("*", "\\*") for cell in cells]
    return [f"`{cell}`" if cell and index < 2 else cell for index, cell in enumerate(escaped)]


if __name__ == "__main__":
    print(markdown(), end="")
