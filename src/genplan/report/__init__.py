"""Results as pages and tables: the benchmark, a single run, and the tables and figures of the documentation."""

from genplan.report.benchmark import benchmark_page
from genplan.report.figures import check_documents, write_documents
from genplan.report.run import run_page

__all__ = ["benchmark_page", "check_documents", "run_page", "write_documents"]
