"""Methods × rows × training seeds, cell by cell: train, judge on the test seeds, write one line of JSON.

A cell is known by what it is (method, row, seed, demonstrations, preset) and by a hash of all its settings: if those
change, the cell is run again and the old line stays beside it, unused. Cells are stored in one file; suites are views
of it. Trainings go on where they were stopped; one training serves all rows that it is judged on. A kill loses the
steps since the last save (a minute at most), or the episodes of the cells that are being judged: the file grows by
whole lines, and a broken last one is dropped.
"""

from genplan.bench.cell import Cell
from genplan.bench.queue import Event, expected_minutes, run
from genplan.bench.results import Results
from genplan.bench.suites import chosen, suites

__all__ = ["Cell", "Event", "Results", "chosen", "expected_minutes", "run", "suites"]
