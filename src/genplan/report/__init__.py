"""The page of all benchmark results."""

from genplan.report.benchmark import benchmark_page

__all__ = ["benchmark_page"]
