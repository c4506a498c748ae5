"""Outcomes -> segments and result lines."""
