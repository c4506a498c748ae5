"""Rows from a program -> answers: `rowmill.infer` inside your own Python.

Run: `python examples/python_api.py`
"""

from __future__ import annotations

import rowmill

CITIES = ["Porto", "Tromsø", "深圳"]


def main() -> None:
    job = rowmill.Job.model_validate(
        {"prompt": "Name a river near {city}.", "engine": {"name": "echo"}}
    )
    rows = ({"city": city} for city in CITIES)
    for answer in rowmill.infer(rows, job):
        print(answer["city"], answer["rowmill_status"], answer["rowmill_text"])


if __name__ == "__main__":
    main()
