"""Arrow values -> what people and JSON are shown of them: one text or value for each, whoever asks.

Promises: nothing is rounded or cut; JSON Lines, CSV and columns of text show a value alike.
Knows nothing of: rows, files.
"""
