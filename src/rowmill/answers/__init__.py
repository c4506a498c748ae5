"""What an answer is held to (`schema`, `regex`, `choices`) -> whether it keeps to it, and which column can hold it.

Promises: one rule for all engines; sentences tell where and what kind, never the answer's own text.
Knows nothing of: engines, rows, files.
"""

from __future__ import annotations

from rowmill.answers.compiled import UnusableSchema, compile_schema
from rowmill.answers.rule import Finding, Rule, rule_of

__all__ = ["Finding", "Rule", "UnusableSchema", "compile_schema", "rule_of"]
