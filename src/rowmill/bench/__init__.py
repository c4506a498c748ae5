"""Workload, contenders -> a table: how long the same file takes rowmill and others, in interleaved rounds.

Promises: every contender gets the same files and the same engine settings; a run whose answers are not complete counts
for nothing and is told.
Knows nothing of: how rows are read, asked or written.
"""
