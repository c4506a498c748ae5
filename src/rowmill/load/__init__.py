"""What a run holds on the disk -> a vector store, as the run goes or after it.

Promises: a vector that is committed gets there once, however often loading is begun; a store that fails costs no row;
the engine waits for no store.
Knows nothing of: engines, any one store.
"""
