"""Rules: small functions with a name and a sentence, that say what was found, what was expected and what to do."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from genplan.errors import UserError, error_location

Outcome = Literal["ok", "broken", "skipped"]
Rule = Callable[[Any], None]
"""Handed what is checked; returns if the rule is kept. Its name is the rule's, its docstring the sentence."""


class Skipped(Exception):  # noqa: N818 (an outcome, not a defect)
    """A rule that does not apply, and why."""


class Finding(NamedTuple):
    """What came of one rule."""

    rule: str
    sentence: str
    outcome: Outcome
    reason: str = ""  # of what is not ok
    about: str = ""  # which of several cases

    def __str__(self) -> str:
        where = f" ({self.about})" if self.about and self.outcome != "ok" else ""
        return f"{self.outcome:8}{self.rule}{where}: {self.reason or self.sentence}"


def expect(kept: Any, found: Any, expected: Any, advice: str) -> None:
    if not kept:
        raise UserError(f"found {found}, expected {expected}; {advice}")


def in_fresh_process(module: str, *arguments: Any) -> Any:
    """What `replay` of the module returns in a process that knows nothing but these arguments."""
    code = (f"import pickle, sys; out, sys.stdout = sys.stdout.buffer, sys.stderr; from {module} import replay; "
            "pickle.dump(replay(*pickle.load(sys.stdin.buffer)), out)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(arguments), capture_output=True)
    reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no more is known"])[-1]
    expect(not done.returncode, reason, "that it loads without an error", "keep all that it needs in its state_dict()")
    return pickle.loads(done.stdout)


def apply_rules(rules: Iterable[Rule], subject: Any, about: str = "") -> Iterator[Finding]:
    """Every rule in turn; whatever goes wrong in one is that rule's outcome."""
    for rule in rules:
        outcome, reason = "ok", ""  # type: tuple[Outcome, str]
        try:
            rule(subject)
        except Skipped as skipped:
            outcome, reason = "skipped", str(skipped)
        except UserError as error:
            outcome, reason = "broken", str(error)
        except Exception as error:
            outcome, reason = "broken", f"found {error_location(error)}, expected no error; correct it there"
        sentence = " ".join((rule.__doc__ or "").split())
        yield Finding(rule.__name__.replace("_", " "), sentence, outcome, reason, about)
