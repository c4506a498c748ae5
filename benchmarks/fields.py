"""What an order of a prompt's parts brings: one order for all rows, or one for each group of rows.

    python benchmarks/fields.py [--rows 8000]

Tables are made up: columns with few values, with many, with values that a part of the rows has in common and the others
not, some decided by others. Each is fed as it stands, sorted, in the one order that `plan.reorder_fields` chooses,
sorted; with each row in the order that its own values say, as `plan.reorder_fields` has it; and in the orders of GGR
(arXiv 2403.05821), made over all rows. Rows are sorted window by window; orders are chosen from the first window. The
engine's pool is played through: a small one, and that of an H200.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from shapes import config_of

from rowmill.forecast.blocks import Beginnings, block_hashes
from rowmill.forecast.engine import Fed, Settings, play
from rowmill.rows import Request, Sampling
from rowmill.size.gpus import gpu_named
from rowmill.size.shape import shape_of
from rowmill.size.steps import StepModel
from rowmill.validate.columns import compile_columns
from rowmill.validate.fields import FieldOrder, best_order
from rowmill.validate.row_orders import RowOrders

Cells = npt.NDArray[np.int64]
HEAD, TAIL, ANSWER, WINDOW = 24, 16, 8, 8192
PLACES = (("L4", 60_000, 256), ("H200", 4_000_000, 1024))
"""(GPU, tokens of its pool, seats)"""
SHAPE = config_of("1.5b")


class Table:
    """Rows of columns: of each cell a number for its value, and its tokens."""

    def __init__(self, rows: int, seed: int = 1) -> None:
        self.rows, self.draw = rows, np.random.default_rng(seed)
        self.names: list[str] = []
        self.cells: list[Cells] = []
        self.tokens: list[Cells] = []

    def even(self, name: str, values: int, tokens: int) -> Cells:
        return self.add(name, self.draw.integers(0, values, self.rows), tokens)

    def zipf(self, name: str, values: int, tokens: int, power: float = 1.1) -> Cells:
        weights = 1.0 / np.arange(1, values + 1) ** power
        return self.add(
            name, self.draw.choice(values, self.rows, p=weights / weights.sum()), tokens
        )

    def own(self, name: str, tokens: int) -> Cells:
        return self.add(name, np.arange(self.rows), tokens)

    def partly(self, name: str, share: float, values: int, tokens: int) -> Cells:
        """A share of the rows has one of few values, each of the others its own."""
        few = self.draw.integers(0, values, self.rows) - values
        return self.add(
            name,
            np.where(self.draw.random(self.rows) < share, few, np.arange(self.rows)),
            tokens,
        )

    def follows(self, name: str, cells: Cells, tokens: int, noise: float = 0.0) -> Cells:
        """Decided by another column, but for a share of the rows."""
        off = self.draw.random(self.rows) < noise
        return self.add(name, np.where(off, -1 - np.arange(self.rows), cells), tokens)

    def add(self, name: str, cells: Cells, tokens: int) -> Cells:
        _, codes = np.unique(cells, return_inverse=True)
        lengths = np.maximum(2, self.draw.normal(tokens, tokens / 5, codes.max() + 1)).astype(
            int
        )
        self.names.append(name)
        self.cells.append(codes)
        self.tokens.append(lengths[codes] + 3)  # with the name of the field
        return cells


def tables(rows: int) -> Iterator[tuple[str, Table]]:
    t = Table(rows)
    t.own("text", 80), t.even("a", 500, 150), t.follows("b", t.even("c", 50, 10) // 10, 3)
    yield "W5: 5, 50, 500 values, one pair", t
    t = Table(rows)
    film = t.zipf("film", 1000, 8)
    t.own("review", 80), t.follows("about", film, 100), t.follows("genre", film % 12, 4)
    critic = t.zipf("critic", 500, 5)
    t.follows("paper", critic % 90, 5, 0.1), t.even("top", 2, 2)
    yield "reviews of films", t
    t = Table(rows)
    brand, seller = t.zipf("brand", 300, 5), t.zipf("seller", 800, 5)
    t.partly("description", 0.3, 10, 110), t.follows("shipping", seller, 60, 0.1)
    t.follows("warranty", brand, 70, 0.1), t.even("category", 20, 4)
    yield "products of brands and sellers", t
    t = Table(rows)
    t.own("question", 40), t.partly("log", 0.4, 20, 150), t.partly("macro", 0.4, 8, 120)
    t.partly("notes", 0.5, 1, 60), t.zipf("product", 60, 30), t.even("plan", 4, 3)
    yield "tickets with common texts in some columns", t
    t = Table(rows)
    kind = t.draw.random(rows) < 0.5
    few, own = t.draw.integers(0, 20, rows) - 20, np.arange(rows)
    t.add("a", np.where(kind, few, own), 150), t.add("b", np.where(kind, own, few), 150)
    yield "two kinds of rows, each with its own column in common", t
    t = Table(rows)
    for i in range(4):
        t.zipf(f"passage {i}", 2000, 120, 0.9)
    t.own("claim", 25)
    yield "four passages found for a claim", t


def ggr(table: Table, deepest: int = 4) -> list[list[int]]:
    """Of each row, its order of columns: the value that saves most, those rows apart, then the same of both."""
    orders: list[list[int]] = [[] for _ in range(table.rows)]

    def part(rows: Cells, columns: list[int], chosen: list[int]) -> None:
        while len(rows) > 1 and len(columns) > 1 and len(chosen) < deepest:
            best, column, value = max(best_value(table, rows, columns, c) for c in columns)
            if not best:
                break
            has = table.cells[column][rows] == value
            part(rows[has], [c for c in columns if c != column], [*chosen, column])
            rows = rows[~has]
        # Columns of few values first: the rest of the rows have little in common.
        rest = sorted(columns, key=lambda c: len(np.unique(table.cells[c][rows])))
        for row in rows.tolist():
            orders[row] = chosen + rest

    part(np.arange(table.rows), list(range(len(table.cells))), [])
    return orders


def best_value(
    table: Table, rows: Cells, columns: list[int], column: int
) -> tuple[float, int, int]:
    """(what it saves, column, value): squares of tokens, its own and those of columns that it decides."""
    cells, tokens = table.cells, table.tokens
    values, first, counts = np.unique(
        cells[column][rows], return_index=True, return_counts=True
    )
    saved = tokens[column][rows][first] ** 2.0 * (counts - 1)
    top = int(np.argmax(saved))
    has = rows[cells[column][rows] == values[top]]
    if len(has) < 2:
        return 0.0, column, 0
    decided = [c for c in columns if c != column and (cells[c][has] == cells[c][has[0]]).all()]
    along = sum(float(tokens[c][has[0]]) ** 2 for c in decided) * (len(has) - 1)
    return float(saved[top]) + along, column, int(values[top])


def ids_of(table: Table, orders: list[list[int]]) -> list[npt.NDArray[np.uint32]]:
    """Token ids of each row: as many of each cell as it has, the same wherever the value is the same."""
    head = np.arange(HEAD, dtype=np.uint32)
    known: dict[tuple[int, int], npt.NDArray[np.uint32]] = {}
    found = []
    for row, order in enumerate(orders):
        parts = [head]
        for c in order:
            key = (c, int(table.cells[c][row]))
            if key not in known:
                draw = np.random.default_rng(key)
                known[key] = draw.integers(100, 1 << 17, int(table.tokens[c][row])).astype(
                    np.uint32
                )
            parts.append(known[key])
        parts.append(np.arange(50, 50 + TAIL, dtype=np.uint32))
        found.append(np.concatenate(parts))
    return found


def windows(rows: list[npt.NDArray[np.uint32]]) -> list[npt.NDArray[np.uint32]]:
    """Rows sorted within their windows."""
    found = []
    for at in range(0, len(rows), WINDOW):
        found += sorted(rows[at : at + WINDOW], key=lambda ids: ids.astype(">u4").tobytes())
    return found


def hits(rows: list[npt.NDArray[np.uint32]], gpu_name: str, pool: int, seats: int) -> str:
    """What is found in the cache, and the time, of rows in their order."""
    hashes, ends = block_hashes(np.concatenate(rows), np.cumsum([len(row) for row in rows]))
    gpu, shape = gpu_named(gpu_name), shape_of(SHAPE)
    assert gpu is not None
    assert shape is not None
    fed = Fed([len(row) for row in rows], [ANSWER] * len(rows), Beginnings(hashes, ends).runs)
    told = Settings(seats=seats, step_tokens=8192, pool_tokens=pool)
    played = play([fed], told, StepModel(shape=shape, gpu=gpu))
    return f"{gpu_name} {played.hit_rate:.1%} {played.seconds:.1f} s"


def chosen(table: Table) -> tuple[FieldOrder, list[list[int]]]:
    """What `plan.reorder_fields` makes of the table: four characters stand for a token."""
    prompt = "\n".join(f"{name}: {{c{i}}}" for i, name in enumerate(table.names))
    cells, tokens = table.cells, table.tokens
    literals = compile_columns(prompt).literals

    def spans(row: int) -> list[str]:
        texts = [
            f"{cells[c][row]:08d}".ljust(4 * int(tokens[c][row]), ".")
            for c in range(len(cells))
        ]
        return [x for pair in zip(literals, texts, strict=False) for x in pair] + [literals[-1]]

    first = [
        Request(row, Sampling(), text="", data_spans=spans(row))
        for row in range(min(WINDOW, table.rows))
    ]
    found = best_order(prompt, first)
    assert found is not None
    one = [int(name[1:]) for name in found.columns]
    if not found.values:
        return found, [one] * table.rows
    # Each column says its number, so that the order of a row can be read off what is made of it.
    of_row = RowOrders(found.prompt, found.values)
    names = {name: c for c, name in enumerate(table.names)}
    orders = []
    for row in range(table.rows):
        given = spans(row)
        ordered = [x for c in one for x in (given[2 * c + 1],)]
        base = list(compile_columns(found.prompt).literals)
        mixed = [x for pair in zip(base, ordered, strict=False) for x in pair] + [base[-1]]
        lines = "".join(of_row(mixed)).split("\n")
        orders.append([names[line.partition(":")[0]] for line in lines])
    return found, orders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--ggr", action="store_true", help="GGR, too: minutes")
    rows, is_ggr = (arguments := parser.parse_args()).rows, arguments.ggr
    for name, table in tables(rows):
        found, own = chosen(table)
        one = [int(column[1:]) for column in found.columns]
        ways = {
            "as it stands": [list(range(len(one)))] * rows,
            "one order": [one] * rows,
            "own orders" if found.values else "own orders: no": own,
        }
        if is_ggr:
            ways["GGR"] = ggr(table)
        print(f"{name}: {[table.names[c] for c in one]}, {len(found.values)} values")
        for way, orders in ways.items():
            ids = windows(ids_of(table, orders))
            told = [hits(ids, *place) for place in PLACES]
            print(f"  {way:14} {len(set(map(tuple, orders))):4} orders; {'; '.join(told)}")


if __name__ == "__main__":
    main()
