"""What lies at an output -> words: status, one row's journey, the results so far in one file, or in a vector store.

Promises: nothing at the output is changed, but for records of what a vector store took; a run that is going on may be looked at.
"""

from rowmill.report.export import Exported, export
from rowmill.report.loading import LoadedRun, load_run
from rowmill.report.run import View, open_view, run_of
from rowmill.report.status import Status, status
from rowmill.report.trace import Journey, trace

__all__ = [
    "Exported",
    "Journey",
    "LoadedRun",
    "Status",
    "View",
    "export",
    "load_run",
    "open_view",
    "run_of",
    "status",
    "trace",
]
