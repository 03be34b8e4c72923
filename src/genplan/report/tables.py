"""Tables of one section: results with the paper's numbers, means over rows, and differences on equal seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from genplan.bench.cell import UNTRAINED
from genplan.bench.stats import paired_difference, permutation_p_value
from genplan.bench.store import CellResult
from genplan.bench.suites import RANDOM_CONTROLS
from genplan.bench.table import COMPARED, PRETRAINED, REFERENCE, ResultPair, ResultTable, column_title, label
from genplan.render.numbers import format_interval, format_number
from genplan.report.html import muted, table
from genplan.tasks.paper import Row
from genplan.types import TEST_SEEDS, Metric

SUCCESS = COMPARED[:1]
ONE_TRAINING = "Each method was trained once: the variance between trainings is not included."


def method_label(results: ResultTable, method: str) -> str:
    return escape(results.marked(method))


def result_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """A row per row of the paper, a column per method and control."""
    methods = results.methods(rows)
    if not methods:
        return "<p>No cell of these rows has been run yet.</p>"

    def best(row: Row, names: Sequence[str]) -> float | None:
        values = (results.value(results.find_current(name, row.name), "success") for name in names)
        return max((value for value in values if value is not None), default=None)

    lines = []
    compared = [method for method in methods if method != PRETRAINED and method not in results.privileged]
    for row in rows:
        entries = []
        for method in methods:
            paper = row.paper.get(label(method))
            entry = result_entry(results, results.find(method, row.name), best(row, compared))
            entries.append(entry if paper is None else f"{entry}<br><i>{paper:g}</i>")
        entries.append(format_number(best(row, RANDOM_CONTROLS), SUCCESS[0].format))
        for control in (f"{UNTRAINED}{REFERENCE}", "expert"):
            entries.append(" ".join(results.texts(results.find(control, row.name), SUCCESS)).rstrip())
        lines.append((escape(row.name), *entries))
    return table(("", *(method_label(results, one) for one in methods), "random", "untrained", "expert"), lines)


def result_entry(results: ResultTable, result: CellResult | None, best: float | None = None) -> str:
    """Success with its interval, and SPL against both references; bold if it is the best of its row."""
    if result is None or (summary := results.summary(result, "success")) is None:
        return "–"
    success, *path, mark = results.texts(result)
    if summary.value == best and not mark:
        success = f"<b>{success}</b>"
    number = "" if result.num_episodes == len(TEST_SEEDS) else f"<br>{result.num_episodes} episodes"
    details = f"{format_interval(summary.low, summary.high, '.0%')}<br>{' · '.join(path)}{number}"
    return f"{success} {mark}".rstrip() + muted(details)


def mean_table(results: ResultTable, rows: Sequence[Row], metrics: Sequence[Metric] = COMPARED) -> str:
    """Means over the rows that a method shares with the reference method, so that a missing row favors nobody."""
    lines = []
    verdicts: dict[str, dict[str, list[str]]] = {metric.label or metric.name: {} for metric in metrics}
    for method in results.methods(rows):
        pairs, name = results.pairs(method, rows), method_label(results, method)
        if not pairs:
            continue
        entries = [name, str(len(pairs))]
        for metric, found in zip(metrics, verdicts.values(), strict=True):
            difference, verdict = _difference(results, pairs, metric)
            mean = results.mean([other for _, other in pairs], metric.name)
            entries += [format_number(mean, metric.format), "" if method == REFERENCE else difference]
            if verdict and method not in (REFERENCE, PRETRAINED):  # the latter have their own budgets
                found.setdefault(verdict, []).append(name)
        lines.append(entries)
    if not lines:
        return ""
    head = ["", "rows", *(name for one in metrics for name in (f"mean {column_title(one)}", f"{REFERENCE} − method"))]
    sentences = []
    for name, found in verdicts.items():
        compared = (f"{verdict} {' and '.join(', '.join(methods).rsplit(', ', 1))}"
                    for verdict, methods in sorted(found.items()))  # fmt: skip
        sentences += [f"In mean {escape(name)} {REFERENCE} is {', '.join(compared)}."] if found else []
    head = list(map(escape, head))
    return f"<h3>Means over shared rows</h3>{table(head, lines)}<p>{' '.join([*sentences, ONE_TRAINING])}</p>"


def difference_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """The reference method minus each other one, row by row."""
    methods = [method for method in results.methods(rows) if method != REFERENCE]
    lines = []
    for row in rows:
        if results.find(REFERENCE, row.name):
            by_method = [results.pairs(method, [row]) for method in methods]
            entries = ["<br>".join(_difference(results, pairs, metric)[0] for metric in COMPARED) if pairs else "–"
                       for pairs in by_method]  # fmt: skip
            lines.append((escape(row.name), *entries))
    if not lines or not methods:
        return ""
    return (
        f"<h3>{REFERENCE} − method, on equal seeds</h3>"
        f"{table(('', *(method_label(results, method) for method in methods)), lines)}"
        '<p class="soft">Percentage points of success, SPL, and SPL against the shortest path, with 95 % intervals of '
        f"the paired differences. ▲ {REFERENCE} is better, ▼ it is worse, at the 5 % level (success: exact sign-flip "
        "test, McNemar's in a single row; over several rows, the differences of a seed in all of them change sign "
        f"together; SPL: the interval excludes zero). {ONE_TRAINING}</p>"
    )


def _difference(results: ResultTable, pairs: Sequence[ResultPair], metric: Metric) -> tuple[str, str]:
    """The paired difference as an entry, and what it says; `–` and nothing if the metric is not known everywhere."""
    if (rows := results.paired_rows(pairs, metric.name)) is None:
        return "–", ""
    found = paired_difference(*rows)
    is_count = metric.interval == "wilson" and all(float(one).is_integer() for row in rows for of in row for one in of)
    significant = permutation_p_value(*rows) <= 0.05 if is_count else found.excludes_zero
    mean, low, high = (_signed(metric, one) for one in (found.mean, found.low, found.high))
    is_better = (found.mean > 0) == metric.higher_is_better
    mark, verdict = (" ▲", "better than") if is_better else (" ▼", "worse than")
    if not significant:
        mark, verdict = "", "not distinguishable from"
    return f"{mean}{mark}{muted(f'{low} … {high}')}", verdict


def _signed(metric: Metric, value: float) -> str:
    text = format_number(value, f"+{metric.format}")
    return text.replace("-", "−") if set(text) & set("123456789") else text[1:]
