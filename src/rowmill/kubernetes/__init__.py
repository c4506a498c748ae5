"""A job -> the objects that a cluster runs it by, and what became of them there.

Promises: what is rendered has been checked; nothing is sent anywhere but by `submit`.
Knows nothing of: rows.
"""
