"""Tables of one section: results with the paper's numbers, means over rows, and differences on equal seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from statistics import fmean

from genplan.bench.cell import UNTRAINED
from genplan.bench.stats import Difference, paired_difference, permutation_p_value
from genplan.bench.store import CellResult
from genplan.bench.suites import RANDOM_CONTROLS
from genplan.bench.table import PRETRAINED, REFERENCE, ResultPair, ResultTable
from genplan.metrics import METRICS
from genplan.report.html import muted, table
from genplan.tasks.paper import Row
from genplan.types import TEST_SEEDS

LABELS = {"success": "success (%)", "spl": "SPL", "spl_shortest": "SPL (shortest)"}  # the metrics that are compared
ONE_TRAINING = "Each method was trained once: the variance between trainings is not included."


def method_label(results: ResultTable, method: str) -> str:
    return escape(results.label(method)) + (" ◆" if method in results.privileged else "")


def format_value(metric: str, value: float | None, empty: str = "–") -> str:
    """Shares of episodes in per cent, anything else with three digits."""
    if value is None:
        return empty
    return f"{100 * value:.1f}" if _is_share(metric) else f"{value:.3f}"


def _is_share(metric: str) -> bool:
    return METRICS[metric].interval == "wilson"


def result_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """A row per row of the paper, a column per method and control."""
    methods = results.methods(rows)
    if not methods:
        return "<p>No cell of these rows has been run yet.</p>"
    lines = []
    for row in rows:
        found = {method: results.find(method, row.name) for method in methods}
        current = [one for one in found.values() if one is not None and not results.is_stale(one)]
        best = max((value for one in current if (value := results.value(one, "success")) is not None), default=0.0)
        entries = [
            result_entry(results, one, best) + _paper_entry(row.paper.get(results.label(method)))
            for method, one in found.items()
        ]
        random = [results.value(one, "success") for name in RANDOM_CONTROLS if (one := results.find(name, row.name))]
        entries.append(format_value("success", max((value for value in random if value is not None), default=None)))
        for control in (f"{UNTRAINED}{REFERENCE}", "expert"):
            one = results.find(control, row.name)
            entries.append(format_value("success", results.value(one, "success")) + stale_mark(results, one))
        lines.append((escape(row.name), *entries))
    head = ("", *(method_label(results, method) for method in methods), "random", "untrained", "expert")
    return table(head, lines)


def stale_mark(results: ResultTable, result: CellResult | None) -> str:
    return " †" if result is not None and results.is_stale(result) else ""


def result_entry(results: ResultTable, result: CellResult | None, best: float | None = None) -> str:
    """Success with its interval, and SPL against both references; bold if it is the best of its row."""
    if result is None or (summary := results.summary(result, "success")) is None:
        return "–"
    text = format_value("success", summary.value)
    text = f"<b>{text}</b>" if summary.value == best and not results.is_stale(result) else text
    path = " · ".join(format_value(metric, results.value(result, metric)) for metric in ("spl", "spl_shortest"))
    number = "" if result.num_episodes == len(TEST_SEEDS) else f"<br>{result.num_episodes} episodes"
    interval = f"{100 * summary.low:.0f}–{100 * summary.high:.0f}"
    return f"{text}{stale_mark(results, result)}{muted(f'{interval}<br>{path}{number}')}"


def _paper_entry(value: float | None) -> str:
    return "" if value is None else f"<br><i>{value:g}</i>"


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
            values = [results.value(other, metric) for _, other in pairs]
            known = [value for value in values if value is not None]
            entries.append(format_value(metric, fmean(known) if len(known) == len(pairs) else None))
            difference = _difference(results, pairs, metric)
            entries.append("" if method == REFERENCE else _difference_entry(metric, difference))
            if difference is not None and method not in (REFERENCE, PRETRAINED):  # the latter have their own budgets
                verdicts[metric].setdefault(_verdict(*difference), []).append(name)
        lines.append(entries)
    if not lines:
        return ""
    head = ["", "rows", *(name for label in LABELS.values() for name in (f"mean {label}", f"{REFERENCE} − method"))]
    sentences = [
        f"In mean {LABELS[metric].removesuffix(' (%)')} {REFERENCE} is "
        f"{', '.join(f'{verdict} {_enumerate(names)}' for verdict, names in sorted(found.items()))}."
        for metric, found in verdicts.items()
        if found
    ]
    return f"<h3>Means over shared rows</h3>{table(head, lines)}<p>{' '.join([*sentences, ONE_TRAINING])}</p>"


def difference_table(results: ResultTable, rows: Sequence[Row]) -> str:
    """The reference method minus each other one, row by row."""
    methods = [method for method in results.methods(rows) if method != REFERENCE]
    lines = []
    for row in rows:
        if results.find(REFERENCE, row.name):
            by_method = [results.pairs(method, [row]) for method in methods]
            entries = [
                "<br>".join(_difference_entry(metric, _difference(results, pairs, metric)) for metric in LABELS)
                if pairs else "–"
                for pairs in by_method
            ]  # fmt: skip
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


def _difference(results: ResultTable, pairs: Sequence[ResultPair], metric: str) -> tuple[Difference, bool] | None:
    """The paired difference, and whether it is significant; None if the metric is not known everywhere."""
    if (rows := results.paired_rows(pairs, metric)) is None:
        return None
    difference = paired_difference(*rows)
    significant = permutation_p_value(*rows) <= 0.05 if _is_share(metric) else difference.excludes_zero
    return difference, significant


def _difference_entry(metric: str, found: tuple[Difference, bool] | None) -> str:
    if found is None:
        return "–"
    difference, significant = found
    mean, low, high = (_signed(metric, one) for one in (difference.mean, difference.low, difference.high))
    mark = "" if not significant else " ▲" if difference.mean > 0 else " ▼"
    return f"{mean}{mark}{muted(f'{low} … {high}')}"


def _signed(metric: str, value: float) -> str:
    text = f"{100 * value:+.1f}" if _is_share(metric) else f"{value:+.3f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _verdict(difference: Difference, significant: bool) -> str:
    if not significant:
        return "not distinguishable from"
    return "better than" if difference.mean > 0 else "worse than"


def _enumerate(names: Iterable[str]) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))
