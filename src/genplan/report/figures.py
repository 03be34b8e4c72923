"""The figures of documents, each tied to a claim of the ledger.

The figures of a document are listed in the order in which they stand there, each with its claim, or as a `fact` (a
definition, a setting, a limit). Whatever else has digits (names, code, commands) is covered by one digest, as are
documents that are history, and cards: no digit can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from genplan.bench.ledger import Claims
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.report.markdown import BLOCK, fill_blocks, render_tables

HISTORY = ("CHANGELOG.md", "docs/log.md", "results/*.md", "src/genplan/pretrained/*/card.json", "results/all-card.json")
CODE = re.compile(r"```\w*\n.*?```|^ {4}.*?$|^\d+\. |`[^`\n]+`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$.*$", re.MULTILINE)
TOKEN = re.compile(r"[^\s|()/–…*“”\"]*\d[^\s|()/–…*“”\"]*")  # anything with a digit
FIGURE = re.compile(r"[−+±~]?(\d[\d,]*(?:\.\d+)?)(?:[%.,;:×s]|ms)*")
FACT, UNTIED = "fact", "?"
HEAD = """\
# The figures of each document in their order, each with its claim (id: metric, then low or high for its interval, % for
# per cent, # for a number of episodes) or as a fact; `digest` covers all other digits. By genplan verify --write.
"""


class Document(NamedTuple):
    """A document's figures, and the digest of all its other digits."""

    figures: list[tuple[str, str]]  # as written, and the reference
    digest: str


def documents(root: Path) -> list[str]:
    """README and what lies beside it, all of docs, what is history, and cards."""
    patterns = ("*.md", "docs/*.md", *HISTORY)
    return sorted({str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)})


def scan(name: str, text: str) -> tuple[list[str], str]:
    """The figures of a document, and the digest of all other digits in it; tables are rendered and not counted."""
    figures, others, history = list[str](), list[str](), any(Path(name).match(pattern) for pattern in HISTORY)

    def take_code(match: re.Match[str]) -> str:
        """Code is covered by the digest; what a command printed is prose."""
        is_console = match[0].startswith("```console")
        others.extend(TOKEN.findall("\n".join(COMMAND.findall(match[0])) if is_console else match[0]))
        return COMMAND.sub("", match[0]) if is_console else ""

    for token in TOKEN.findall(text if history else CODE.sub(take_code, BLOCK.sub("", text))):
        if not history and (match := FIGURE.fullmatch(token)):
            figures.append(match[1].rstrip(","))
        else:
            others.append(token)
    return figures, hashlib.sha256(" ".join(others).encode()).hexdigest()[:16]


def read_figures(path: Path) -> dict[str, Document]:
    """The list of figures per document."""
    try:
        entries = tomllib.loads(path.read_text()) if path.exists() else {}
        listed = {}
        for name, entry in entries.items():
            figures = [line.partition(" = ")[::2] for line in entry.get("figures", "").splitlines()]
            listed[name] = Document(figures, entry["digest"])
        return listed
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path} is not a list of figures ({error}); correct it, or restore it") from error


def figures_text(found: Mapping[str, Document]) -> str:
    text = HEAD
    for name, (figures, digest) in found.items():
        lines = "".join(f"{figure} = {reference}\n" for figure, reference in figures)
        text += f'\n[{json.dumps(name)}]\ndigest = "{digest}"\n' + (f"figures = '''\n{lines}'''\n" if lines else "")
    return text


def reference_text(claims: Claims, reference: str, figure: str) -> str:
    """What a reference says, with as many digits after the point as the figure has."""
    claim_id, _, rest = reference.rpartition(": ")
    metric, *options = rest.split() or [""]
    claim = claims.get(claim_id)
    values = claim and {**claim.metrics, "minutes": [claim.minutes]}.get(metric)
    if not claim or not values or not set(options) <= {"low", "high", "%", "#"}:
        raise UserError(f"'{reference}' is no claim of the ledger")
    place = 1 if "low" in options else 2 if "high" in options else 0
    if place >= len(values):
        raise UserError(f"'{reference}': that claim has no interval")
    scale = 100 if "%" in options else claim.episodes if "#" in options else 1
    comma, decimals = "," if "," in figure else "", len(figure.partition(".")[2])
    return f"{round(values[place] * scale, 9):{comma}.{decimals}f}"


def check_document(
    name: str, text: str, listed: Document | None, claims: Claims, tables: Mapping[str, str]
) -> list[str]:
    """What is wrong with the figures of a document, in words."""
    if listed is None:
        return [f"{name} is not in the list of figures"]
    found, digest = scan(name, text)
    wrong = [] if fill_blocks(text, tables) == text else ["a table is not what the ledger says"]
    expected = [figure for figure, _ in listed.figures]
    for change, start, end, first, last in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if change != "equal":
            was, now = " ".join(expected[start:end]), " ".join(found[first:last])
            wrong.append(f"figure {first + 1} is '{now}', the list has '{was}'")
    if digest != listed.digest:
        wrong.append("digits in names, code or history are not those of the list")
    for number, (figure, reference) in enumerate(listed.figures, 1):
        if reference == UNTIED:
            wrong.append(f"figure {number}, '{figure}', has no claim; name one in the list, or call it a {FACT}")
        elif reference != FACT:
            try:
                if (claimed := reference_text(claims, reference, figure)) != figure:
                    wrong.append(f"figure {number} is '{figure}', '{reference}' is {claimed}")
            except UserError as error:
                wrong.append(f"figure {number}, '{figure}': {error}")
    return [f"{name}: {one}" for one in wrong]


def check_documents(root: Path, figures: Path, claims: Claims) -> list[str]:
    """What is wrong with the figures of all documents."""
    listed, tables = read_figures(figures), render_tables(claims)
    found = documents(root)
    wrong = [f"{name} is in the list of figures, and is not there" for name in sorted(set(listed) - set(found))]
    for name in found:
        wrong += check_document(name, (root / name).read_text(), listed.get(name), claims, tables)
    return wrong


def write_documents(root: Path, figures: Path, claims: Claims) -> None:
    """Render all tables again, and list all figures; those that stayed keep their references, new ones have none."""
    listed, tables, updated = read_figures(figures), render_tables(claims), dict[str, Document]()
    for name in documents(root):
        text = (root / name).read_text()
        if (filled := fill_blocks(text, tables)) != text:
            write_atomically(root / name, filled.encode())
        found, digest = scan(name, filled)
        old = listed.get(name, Document([], "")).figures
        references = [UNTIED] * len(found)
        matcher = SequenceMatcher(None, [figure for figure, _ in old], found, autojunk=False)
        for start, first, size in matcher.get_matching_blocks():
            references[first : first + size] = [reference for _, reference in old[start : start + size]]
        updated[name] = Document(list(zip(found, references, strict=True)), digest)
    write_atomically(figures, figures_text(updated).encode())
