"""Rows from a program -> answers: `rowmill.infer` inside your own Python.

Run: `python examples/python_api.py`
"""

from __future__ import annotations

import rowmill

CITIES = ["Porto", "Tromsø", "深圳"]


def main() -> None:
    rows = [{"id": city, "city": city} for city in CITIES]
    job = {"prompt": "Name a river near {city}.", "engine": {"name": "echo"}}
    for answer in rowmill.infer(rows, job):
        print(answer)


if __name__ == "__main__":
    main()
