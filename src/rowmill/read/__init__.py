"""Files -> Shards -> Rows: everything that reads the input.

Promises: every line of every file belongs to one shard, every non-blank line is one row;
the same files give the same keys.
Knows nothing of: what a row says (validate), which rows a worker takes (tasks).
Memory: one chunk a reader; a record a file and a shard.
"""

from rowmill.read.badline import BadLine
from rowmill.read.scan import SourceFile
from rowmill.read.shards import in_turn, line_of, read_rows, read_spans, read_tables, schema_of
from rowmill.read.source import Source, changed, open_recorded, open_source

__all__ = [
    "BadLine",
    "Source",
    "SourceFile",
    "changed",
    "in_turn",
    "line_of",
    "open_recorded",
    "open_source",
    "read_rows",
    "read_spans",
    "read_tables",
    "schema_of",
]
