"""Words of words.txt do not come back: not in identifiers, and some of them not in prose either."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "genplan"
FILES = sorted(SOURCE.rglob("*.py"))
MINIGRID = {"WorldObj", "world_object"}  # names of others' classes and modules
Phrase = tuple[str, ...]


def parts(text: str) -> list[str]:
    """Words of prose or of an identifier: `goal_kinds`, `GoalKinds` and "goal kinds" are the same two."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)]


def read_words() -> tuple[dict[str, dict[Phrase, str]], list[tuple[str, str]]]:
    words: dict[str, dict[Phrase, str]] = {"everywhere": {}, "identifiers": {}}
    exempt: list[tuple[str, str]] = []
    section = ""
    for line in (Path(__file__).parent / "words.txt").read_text().splitlines():
        if line.startswith("["):
            section = line[1 : line.index("]")]
        elif line and not line.startswith("#"):
            left, _, right = line.partition(": ")
            if section == "exempt":
                path, word = left.split()
                exempt.append((path, word))
            else:
                words[section][tuple(parts(left))] = right
    return words, exempt


WORDS, EXEMPT = read_words()


def is_rng_label(node: ast.AST) -> bool:
    """Labels of random draws are part of every result and never renamed."""
    if isinstance(node, ast.Assign):
        targets = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        return bool(targets) and all(name.startswith("RNG_") for name in targets)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fold"


def identifiers_and_strings(node: ast.AST) -> Iterator[tuple[str, int, str]]:
    """(identifiers or strings, line, text) of a syntax tree."""
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Name):
        yield "identifiers", line, node.id
    elif isinstance(node, ast.Attribute):
        yield "identifiers", line, node.attr
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield "identifiers", line, node.name
    elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
        yield "identifiers", line, node.arg
    elif isinstance(node, ast.alias):
        yield "identifiers", line, node.asname or node.name
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "strings", line, node.value
    for child in ast.iter_child_nodes(node):
        if is_rng_label(node) and not isinstance(child, ast.Attribute):
            continue
        yield from identifiers_and_strings(child)


def texts(path: Path) -> Iterator[tuple[str, int, str]]:
    code = path.read_text()
    yield "identifiers", 1, path.stem
    yield from identifiers_and_strings(ast.parse(code))
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string


def is_exempt(path: Path, phrase: Phrase) -> bool:
    name = path.relative_to(SOURCE).as_posix()
    return any(name.startswith(prefix) and word in ("*", " ".join(phrase)) for prefix, word in EXEMPT)


def found_words(path: Path) -> list[str]:
    found = []
    for kind, line, text in texts(path):
        if text in MINIGRID:
            continue
        sequence = parts(text)
        listed = WORDS["everywhere"] | (WORDS["identifiers"] if kind == "identifiers" else {})
        for phrase, instead in listed.items():
            hits = any(tuple(sequence[i : i + len(phrase)]) == phrase for i in range(len(sequence)))
            if hits and not is_exempt(path, phrase):
                found.append(f"{path.relative_to(SOURCE)}:{line}: '{' '.join(phrase)}' in {kind}, say {instead}")
    return found


@pytest.mark.parametrize("path", FILES, ids=[path.relative_to(SOURCE).as_posix() for path in FILES])
def test_old_words_do_not_come_back(path):
    found = found_words(path)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("def f(vain_share): ...", "vain"),
        ("class DeskClerk: ...", "desk"),
        ('"""It is told the goals."""', "told"),
        ("x = 1  # the colour", "colour"),
        ("x = law", "law"),
    ],
)
def test_old_words_are_found(code, word, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_words.SOURCE", tmp_path)
    (tmp_path / "some.py").write_text(code + "\n")
    assert any(f"'{word}'" in line for line in found_words(tmp_path / "some.py"))


def test_labels_of_random_draws_are_exempt(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_words.SOURCE", tmp_path)
    (tmp_path / "some.py").write_text('RNG_A, RNG_B = "urge", "vain"\nrng.fold("strange way", 1)\n"its law"\n')
    assert found_words(tmp_path / "some.py") == []
