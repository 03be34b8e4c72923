"""The benchmark: methods × rows × training seeds, cell by cell.

A cell is known by what it is (method, row, seed, demonstrations, preset) and by all its settings: if those change, it
is run again, and the old result stays in the file, marked as stale. All results are in one file; suites are selections
of cells. Trainings continue where they were stopped, and one training serves all rows that it is evaluated on. A kill
loses the steps since the last save, or the episodes of the cells that are being evaluated: the file grows by whole
lines, and a cut-off last line is removed.
"""

from genplan.bench.cell import Cell
from genplan.bench.run import BenchEvent, estimated_minutes, run_cells
from genplan.bench.store import CellResult, ResultStore
from genplan.bench.suites import CONTROLS, select, suites
from genplan.bench.table import ResultTable

__all__ = [
    "CONTROLS", "BenchEvent", "Cell", "CellResult", "ResultStore", "ResultTable", "estimated_minutes", "run_cells",
    "select", "suites",
]  # fmt: skip
