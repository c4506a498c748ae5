"""`[output]` and names -> the form of results files."""

from __future__ import annotations

import msgspec
import pytest
from pydantic import ValidationError

from rowmill.config import OutputConfig
from rowmill.rows import Format, Shard
from rowmill.write.form import Form, form_of, form_of_name


def shards(*formats: Format) -> list[Shard]:
    shard = Shard(0, "x", "x", 0, 1, 1, 1)
    return [msgspec.structs.replace(shard, format=format_) for format_ in formats]


@pytest.mark.parametrize(
    ("formats", "wanted"),
    [
        (("parquet", "arrow"), Form("parquet", "zstd")),
        (("parquet", "jsonl"), Form("jsonl")),
        (("csv",), Form("jsonl")),
        ((), Form("jsonl")),
    ],
)
def test_tables_stay_tables_unless_said_otherwise(
    formats: tuple[Format, ...], wanted: Form
) -> None:
    assert form_of(OutputConfig(), shards(*formats)) == wanted


def test_what_the_job_names_holds() -> None:
    output = OutputConfig(format="csv", compression="gzip", order="completion")

    assert form_of(output, shards("parquet")) == Form("csv", "gzip", "completion")
    assert form_of(output, shards("parquet")).suffix == ".csv.gz"
    assert Form("parquet", "gzip").suffix == ".parquet"


def test_gzip_inside_arrow_is_refused_with_the_job() -> None:
    with pytest.raises(ValidationError, match="`zstd` and `none`"):
        OutputConfig(format="arrow", compression="gzip")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.jsonl", Form()),
        ("a.ndjson.zst", Form("jsonl", "zstd")),
        ("a.csv.gz", Form("csv", "gzip")),
        ("a.parquet", Form("parquet", "zstd")),
        ("a.feather", Form("arrow")),
        ("a.arrow.gz", None),
        ("a.parquet.zst", None),
        ("a.gz", None),
        ("a.txt", None),
        ("jsonl", None),
    ],
)
def test_a_name_says_how_a_file_is_written(name: str, wanted: Form | None) -> None:
    assert form_of_name(name) == wanted
