"""Outcomes + source -> rows of results, as lines or as batches, in input or completion order.

Promises: every non-blank source line of a part comes once, beside its own outcome, or joining fails.
Knows nothing of: names of files, how files are written.
"""
