"""Lengths and shared beginnings of rows, a model, GPUs -> what a run will take, said before it is paid for.

Promises: pure; the same rows give the same figures; nothing is asked of a GPU.
Knows nothing of: files, engines' libraries, how rows came to their order.
"""
