#!/usr/bin/env python3
"""Measure a broker, and print what came out beside what the design wants: `python3 benchmarks/run.py --help`.

What is measured stands in the files of the sections; this file only decides what runs, in which order, and on what.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

import click
from rich.console import Console
from rich.progress import Progress

import clients
import compaction
import conversion
import crowds
import durability
import embedding
import encryption
import exchanges
import fast_paths
import floor
import groups
import growth
import machine
import parts
import programs
import proxying
import registries
import restarts
import rights
import servers
import shares
import startup
import transactions
from report import Case, Results, Section, as_json, print_tables
from servers import Server, Target

FULL_SECONDS, FULL_REPETITIONS = 0.7, 3
WIDTH = 190  # of the tables in a file or a pipe
QUICK_SECONDS, QUICK_REPETITIONS = 0.3, 1


def all_sections(seconds: float) -> list[Section]:
    """In the order in which they run; memory comes last, because it shows what the others left behind."""
    *starts, memory = startup.sections()
    return [
        *starts,
        *exchanges.sections(seconds),
        *floor.sections(seconds),
        *fast_paths.sections(seconds),
        *clients.sections(seconds),
        *encryption.sections(seconds),
        *rights.sections(seconds),
        *crowds.sections(seconds),
        *groups.sections(seconds),
        *shares.sections(seconds),
        *transactions.sections(seconds),
        *parts.sections(),
        *durability.sections(seconds),
        *compaction.sections(seconds),
        *conversion.sections(seconds),
        *proxying.sections(seconds),
        *registries.sections(),
        *restarts.sections(),
        *growth.sections(),
        *embedding.sections(),
        memory,
    ]


def start_targets(stack: ExitStack, against: Sequence[str], bootstrap: str | None, pid: int | None) -> list[Target]:
    """The servers that rows run on, started until `stack` closes. Raises click.UsageError and Unavailable."""
    if bootstrap is not None:
        if pid is None:
            raise click.UsageError("--bootstrap needs --server-pid, to read the server's CPU time")
        return [Target("foreign", stack.enter_context(servers.foreign(bootstrap, pid)), None)]
    starters = {"minibroker": servers.minibroker, "compiled": servers.compiled, "kfake": servers.kfake, "kafka": _kafka}
    targets = []
    for name in ["minibroker", *against]:
        server = _kafka(warm=True) if name == "kafka" else starters[name]()
        targets.append(Target(name, stack.enter_context(server), starters[name]))
    return targets


def _kafka(*, warm: bool = False) -> AbstractContextManager[Server]:
    from apache_kafka import kafka  # what starts it is in conformance/

    return kafka(warm=warm)


def measure(sections: Sequence[Section], targets: Sequence[Target], repetitions: int, console: Console) -> Results:
    """Every row on every server, then all of it again: what disturbs the machine for a while disturbs all alike."""
    results = Results()
    rounds = [(section, case, target) for section in sections for case in section.cases for target in targets]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("warming up", total=repetitions * len(rounds))
        for target in targets:
            with suppress(
                programs.Unavailable, programs.Failed
            ):  # rows that need the same say why they have no figures
                exchanges.warm_up(target.server)
        for _ in range(repetitions):
            for section, case, target in rounds:
                progress.update(bar, description=f"{section.name}: {case.name}, {target.name}")
                sample(section, case, target, results)
                progress.advance(bar)
    return results


def sample(section: Section, case: Case, target: Target, results: Results) -> None:
    """One sample of one row. What has none is noted with the reason, and the other rows still run."""
    key = (section.name, case.name, target.name)
    try:
        taken = case.measure(target)
    except programs.Unavailable as reason:
        results.left_out[key] = str(reason)
    except (programs.Failed, servers.NotListening, OSError, ValueError) as reason:
        results.failed[key] = f"{type(reason).__name__}: {reason}"
    else:
        results.samples.setdefault(key, []).append(taken)


def is_named(section: str, word: str) -> bool:
    """Whether the word means this section: "growth" means all whose names begin with it."""
    return section == word or section.startswith(f"{word}-")


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run only this section; may be given several times.")
@click.option("--quick", is_flag=True, help="One short repetition of everything: below two minutes.")
@click.option("--json", "json_wanted", is_flag=True, help="Print all samples as JSON instead of tables.")
@click.option(
    "--against", multiple=True, type=click.Choice(["kfake", "kafka"]), help="Measure this server too, row by row."
)
@click.option("--compiled", is_flag=True, help="Measure this checkout as mypyc compiles it, too, row by row.")
@click.option("--bootstrap", metavar="HOST:PORT", help="Measure a server that runs already, in place of minibroker.")
@click.option("--server-pid", type=int, help="The process id of that server.")
def main(
    only: tuple[str, ...],
    quick: bool,
    json_wanted: bool,
    against: tuple[str, ...],
    compiled: bool,
    bootstrap: str | None,
    server_pid: int | None,
) -> None:
    """Measure a broker side by side with its targets. Exits with 1 when a row failed, never for a slow one."""
    sections = all_sections(QUICK_SECONDS if quick else FULL_SECONDS)
    names = [section.name for section in sections]
    unknown = [word for word in only if not any(is_named(name, word) for name in names)]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: the sections are {', '.join(names)}")
    sections = [section for section in sections if not only or any(is_named(section.name, word) for word in only)]
    load_before = machine.load_average()
    with ExitStack() as stack:
        stack.callback(lambda: shutil.rmtree(programs.build_directory()))
        try:
            targets = start_targets(stack, [*["compiled"] * compiled, *against], bootstrap, server_pid)
        except (programs.Unavailable, servers.NotListening, OSError, RuntimeError) as error:
            raise click.ClickException(str(error)) from error
        repetitions = QUICK_REPETITIONS if quick else FULL_REPETITIONS
        results = measure(sections, targets, repetitions, Console(stderr=True))
    here = machine.describe(load_before)
    if json_wanted:
        json.dump(as_json(sections, results, here), sys.stdout, indent=1)
    else:
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        print_tables(console, sections, results, here)
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
