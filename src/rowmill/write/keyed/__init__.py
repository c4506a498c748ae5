"""Vectors with their rows' columns -> a vector store, under the row's key.

Promises: a vector comes once however often it is put; what a store cannot hold is refused row by row, and told;
dimensions, metric and table are checked before anything is written.
Knows nothing of: runs, commits, where vectors come from.
"""
