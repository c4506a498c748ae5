"""What lies at an output -> words: status, one row's journey, the results so far in one file.

Promises: nothing at the output is changed; a run that is going on may be looked at.
"""

from rowmill.report.export import Exported, export
from rowmill.report.run import View, open_view, run_of
from rowmill.report.status import Status, status
from rowmill.report.trace import Journey, trace

__all__ = [
    "Exported",
    "Journey",
    "Status",
    "View",
    "export",
    "open_view",
    "run_of",
    "status",
    "trace",
]
