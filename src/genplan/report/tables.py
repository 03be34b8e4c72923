"""Tables of one section: results with the paper's numbers, means over rows, and differences on equal seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from genplan.bench.cell import UNTRAINED
from genplan.bench.stats import paired_difference, permutation_p_value
from genplan.bench.store import CellResult
from genplan.bench.suites import RANDOM_CONTROLS
from genplan.bench.table import PRETRAINED, REFERENCE, ResultPair, ResultTable, label
from genplan.metrics import METRICS
from genplan.render.numbers import format_interval, format_number
from genplan.report.html import muted, table
from genplan.tasks.paper import Row
from genplan.types import TEST_SEEDS

LABELS = {"success": "success (%)", "spl": "SPL", "spl_shortest": "SPL (shortest)"}  # the metrics that are compared
ONE_TRAINING = "Each method was trained once: the variance between trainings is not included."


def method_label(results: ResultTable, method: str) -> str:
    return escape(label(method)) + (" ◆" if method in results.privileged else "")


def stale_mark(results: ResultTable, result: CellResult | None) -> str:
    return " †" if result is not None and results.is_stale(result) else ""


def format_value(metric: str, value: float | None, empty: str = "–") -> str:
    return format_number(value, METRICS[metric].format, empty)


def mean_value(results: ResultTable, found: Sequence[CellResult | None], metric: str) -> float | None:
    """The mean of a metric over results; None unless all are there and have it."""
    values = [value for one in found if (value := results.value(one, metric)) is not None]
    return fmean(values) if values and len(values) == len(found) else None


def best_random(results: ResultTable, row: Row) -> float | None:
    """The success of the best random policy."""
    values = (results.value(results.find_current(name, row.name), "success") for name in RANDOM_CONTROLS)
    return max((value for value in values if value is not None), default=None)


def result_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """A row per row of the paper, a column per method and control."""
    methods = results.methods(rows)
    if not methods:
        return "<p>No cell of these rows has been run yet.</p>"
    lines = []
    for row in rows:
        current = (results.value(results.find_current(method, row.name), "success") for method in methods
                   if method != PRETRAINED and method not in results.privileged)  # fmt: skip
        best = max((value for value in current if value is not None), default=None)
        entries = []
        for method in methods:
            paper = row.paper.get(label(method))
            entry = result_entry(results, results.find(method, row.name), best)
            entries.append(entry if paper is None else f"{entry}<br><i>{paper:g}</i>")
        entries.append(format_value("success", best_random(results, row)))
        for control in (f"{UNTRAINED}{REFERENCE}", "expert"):
            one = results.find(control, row.name)
            entries.append(format_value("success", results.value(one, "success")) + stale_mark(results, one))
        lines.append((escape(row.name), *entries))
    return table(("", *(method_label(results, one) for one in methods), "random", "untrained", "expert"), lines)


def result_entry(results: ResultTable, result: CellResult | None, best: float | None = None) -> str:
    """Success with its interval, and SPL against both references; bold if it is the best of its row."""
    if result is None or (summary := results.summary(result, "success")) is None:
        return "–"
    success, *path = (format_value(metric, results.value(result, metric)) for metric in LABELS)
    if summary.value == best and not results.is_stale(result):
        success = f"<b>{success}</b>"
    number = "" if result.num_episodes == len(TEST_SEEDS) else f"<br>{result.num_episodes} episodes"
    details = f"{format_interval(summary.low, summary.high, '.0%')}<br>{' · '.join(path)}{number}"
    return f"{success}{stale_mark(results, result)}{muted(details)}"


def mean_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """Means over the rows that a method shares with the reference method, so that a missing row favors nobody."""
    lines = []
    verdicts: dict[str, dict[str, list[str]]] = {metric: {} for metric in LABELS}
    for method in results.methods(rows):
        pairs, name = results.pairs(method, rows), method_label(results, method)
        if not pairs:
            continue
        entries = [name, str(len(pairs))]
        for metric in LABELS:
            difference, verdict = _difference(results, pairs, metric)
            mean = mean_value(results, [other for _, other in pairs], metric)
            entries += [format_value(metric, mean), "" if method == REFERENCE else difference]
            if verdict and method not in (REFERENCE, PRETRAINED):  # the latter have their own budgets
                verdicts[metric].setdefault(verdict, []).append(name)
        lines.append(entries)
    if not lines:
        return ""
    head = ["", "rows", *(name for label in LABELS.values() for name in (f"mean {label}", f"{REFERENCE} − method"))]
    sentences = []
    for metric, found in verdicts.items():
        if found:
            compared = (f"{verdict} {' and '.join(', '.join(names).rsplit(', ', 1))}"
                        for verdict, names in sorted(found.items()))  # fmt: skip
            sentences.append(f"In mean {LABELS[metric].removesuffix(' (%)')} {REFERENCE} is {', '.join(compared)}.")
    return f"<h3>Means over shared rows</h3>{table(head, lines)}<p>{' '.join([*sentences, ONE_TRAINING])}</p>"


def difference_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """The reference method minus each other one, row by row."""
    methods = [method for method in results.methods(rows) if method != REFERENCE]
    lines = []
    for row in rows:
        if results.find(REFERENCE, row.name):
            by_method = [results.pairs(method, [row]) for method in methods]
            entries = ["<br>".join(_difference(results, pairs, metric)[0] for metric in LABELS) if pairs else "–"
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


def _difference(results: ResultTable, pairs: Sequence[ResultPair], metric: str) -> tuple[str, str]:
    """The paired difference as an entry, and what it says; `–` and nothing if the metric is not known everywhere."""
    if (rows := results.paired_rows(pairs, metric)) is None:
        return "–", ""
    found, is_share = paired_difference(*rows), METRICS[metric].interval == "wilson"
    significant = permutation_p_value(*rows) <= 0.05 if is_share else found.excludes_zero
    mean, low, high = (_signed(metric, one) for one in (found.mean, found.low, found.high))
    mark, verdict = (" ▲", "better than") if found.mean > 0 else (" ▼", "worse than")
    if not significant:
        mark, verdict = "", "not distinguishable from"
    return f"{mean}{mark}{muted(f'{low} … {high}')}", verdict


def _signed(metric: str, value: float) -> str:
    text = format_number(value, f"+{METRICS[metric].format}")
    return text[1:] if float(text) == 0 else text.replace("-", "−")
