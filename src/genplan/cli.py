"""The command line: a dict of plain functions, whose arguments become flags."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial


def toy() -> int:
    """Learn a problem with a known answer in seconds, with both noise sources, and judge the samples."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from genplan import toy as problem
    from genplan.flow import Source

    torch.set_num_threads(1)  # on operations this small, a second thread costs more than it gives
    console = Console()
    console.print("Three moves of a walker on a ring: 27 plans, each with a known chance. Training on samples alone.")
    table = Table("source", "possible plans", "distance to the law", "as many true draws", "trained in", "verdict")
    passed = True
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        for source in Source:
            task = progress.add_task(f"training, {source} source", total=problem.STEPS)
            verdict = problem.run(source, tick=partial(progress.advance, task))
            passed &= verdict.passed
            table.add_row(
                str(verdict.source),
                f"{verdict.possible:.1%}",
                f"{verdict.distance:.3f}",
                f"{verdict.chance_distance:.3f}",
                f"{verdict.seconds:.1f} s",
                "[green]learnt[/]" if verdict.passed else "[red]not learnt[/]",
            )
    console.print(table)
    return 0 if passed else 1


COMMANDS: dict[str, Callable[..., int]] = {"toy": toy}


def main() -> None:
    import tyro

    arguments = sys.argv[1:]
    if arguments[:1] == ["--version"]:
        from genplan import __version__

        print(f"genplan {__version__}")
        return
    sys.exit(tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="genplan", description=__doc__, args=arguments))
