"""The command line: plain functions, whose arguments become flags.

Heavy imports are inside the commands, so that the command line answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from genplan.cli.bench import bench_run, report
from genplan.cli.check import check
from genplan.cli.data import data_import, data_show, demos, tasks
from genplan.cli.planners import evaluate, export, plan, reproduce
from genplan.cli.quickstart import quickstart
from genplan.cli.train import train
from genplan.cli.verify import verify
from genplan.errors import ChangedFileWarning, ExpertFailure, UserError, error_location


def serve(runs: Path = Path("runs"), host: str = "127.0.0.1", port: int = 8000, open_browser: bool = True) -> int:
    """Start the page on which one edits a maze and watches a plan take shape; stop with Ctrl-C.

    Args:
        runs: Runs in this folder can be chosen and watched, beside the planners that come with genplan.
        host: Where to listen; by default only this machine can connect.
        port: The port.
        open_browser: Open the page.
    """
    try:
        from genplan.serve.app import serve as start
    except ModuleNotFoundError as error:
        raise UserError(f"the page needs {error.name}; install it with: pip install 'genplan[serve]'") from error
    start(runs, host, port, open_browser)
    return 0


def _train() -> int:
    """Train a planner; stop with Ctrl-C, the same command goes on."""
    raise AssertionError("`train` is parsed on its own: its flags depend on the method")


COMMANDS: dict[str, Callable[..., int]] = {
    "quickstart": quickstart,
    "tasks": tasks,
    "demos": demos,
    "data show": data_show,
    "data import": data_import,
    "train": _train,
    "eval": evaluate,
    "plan": plan,
    "export": export,
    "reproduce": reproduce,
    "bench run": bench_run,
    "report": report,
    "check": check,
    "verify": verify,
    "serve": serve,
}


def _run(arguments: list[str]) -> int:
    if "--codec" in arguments[:-1]:  # of a run that was trained with a codec of one's own; in every command
        from genplan.planners import use_codec

        place = arguments.index("--codec")
        use_codec(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    if arguments[:1] == ["train"]:
        return train(arguments[1:])
    for name in COMMANDS:  # a command of two words is one word to tyro
        if " " in name and arguments[:2] == name.split():
            arguments = [name, *arguments[2:]]
    description = "Plan from demonstrations with discrete flow models."
    code: int = tyro.extras.subcommand_cli_from_dict(COMMANDS, args=arguments, prog="genplan", description=description)
    return code


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Ours in one line, without where in the code it was raised."""
    ours = issubclass(category, ChangedFileWarning)
    text = f"genplan: {message}\n" if ours else warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(text)


def main() -> None:
    warnings.showwarning = _show_warning
    # Threads that wait must sleep: spinning beside another job makes both many times slower. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.argv[1:2] == ["--version"]:
        from genplan import __version__

        print(f"genplan {__version__}")
        return
    try:
        sys.exit(_run(sys.argv[1:]))
    except ExpertFailure as error:
        reason, code = f"the expert cannot continue: {error}; choose other seeds, or another planner", 1
    except UserError as error:
        reason, code = str(error), 1
    except KeyboardInterrupt:
        reason, code = "stopped; run the same command again to continue", 130
    except BrokenPipeError:  # `genplan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        reason, code = f"'{error.filename}' cannot be used ({error.strerror}); fix it or choose another", 1
    except Exception as error:
        if not (files := [one for one in sys.argv[1:] if ".py:" in one]):
            raise  # a mistake of ours
        reason, code = (f"{' or '.join(files)} failed: {error_location(error)}; to find out which of its parts is "
                        f"wrong: genplan check {files[0]}"), 1  # fmt: skip
    print(f"genplan: {reason}", file=sys.stderr)
    sys.exit(code)
