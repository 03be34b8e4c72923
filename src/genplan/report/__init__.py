"""Results as pages and tables: the benchmark, a single run, and the tables of the documentation."""

from genplan.report.benchmark import benchmark_page
from genplan.report.markdown import fill_docs, render_results
from genplan.report.run import run_page

__all__ = ["benchmark_page", "fill_docs", "render_results", "run_page"]
