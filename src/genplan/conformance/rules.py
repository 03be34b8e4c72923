"""Rules: small functions with a name and a sentence, that say what was found, what was expected and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from genplan.errors import UserError
from genplan.tasks.files import error_location

Rule = Callable[[Any], None]
"""Handed what is checked; returns if the rule is kept. Its name is the rule's, its docstring the sentence."""


class Broken(Exception):  # noqa: N818 (an outcome, not a defect)
    """A rule that is not kept."""


class Skipped(Exception):  # noqa: N818
    """A rule that does not apply, and why."""


def expect(kept: Any, found: Any, expected: str, advice: str) -> None:
    if not kept:
        raise Broken(f"found {found}, expected {expected}; {advice}")


def in_fresh_process(module: str, *arguments: Any) -> None:
    """Call `replay` of the module with these arguments, as texts, in a process that knows nothing else."""
    code = f"import sys; from {module} import replay; replay(*sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    reason = (done.stderr.strip().splitlines() or ["no more is known"])[-1]
    expect(not done.returncode, reason, "that it loads without an error", "keep all that it needs in its state_dict()")


@dataclass(frozen=True)
class Finding:
    """What came of one rule."""

    rule: str
    sentence: str
    outcome: Literal["ok", "broken", "skipped"]
    reason: str = ""  # of what is not ok
    about: str = ""  # which of several cases

    def __str__(self) -> str:
        where = f" ({self.about})" if self.about and self.outcome != "ok" else ""
        return f"{self.outcome:8}{self.rule}{where}: {self.reason or self.sentence}"


def apply_rules(rules: Iterable[Rule], subject: Any, name: str = "", about: str = "") -> Iterator[Finding]:
    """Every rule in turn; whatever goes wrong in one is that rule's outcome. `name`: file.py:Thing, if it is a file."""
    for rule in rules:
        outcome: Literal["ok", "broken", "skipped"] = "broken"
        reason = ""
        try:
            rule(subject)
            outcome = "ok"
        except Skipped as skipped:
            outcome, reason = "skipped", str(skipped)
        except (Broken, UserError) as error:
            reason = str(error)
        except Exception as error:
            reason = f"found {error_location(error, name or '.:')}, expected no error; correct it there"
        sentence = " ".join((rule.__doc__ or "").split())
        yield Finding(rule.__name__.replace("_", " "), sentence, outcome, reason, about)
