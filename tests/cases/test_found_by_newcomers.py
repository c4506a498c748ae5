"""What people who did not know the program ran into."""

from __future__ import annotations

from pathlib import Path

from tests.cases.command import OK, REFUSED, SOME_FAILED, job, results, rowmill, run

ROWS = "id;text\n1;gut\n2;nicht, gut\n"


def test_columns_of_a_changed_input_are_never_put_beside_old_answers(tmp_path: Path) -> None:
    source, out = tmp_path / "c.csv", tmp_path / "out"
    source.write_text("id,text\n1,a\n")
    assert run(source, out, "--prompt", "{text}").code == OK
    source.write_text("id,text\n1,b\n")
    told = rowmill("export", [str(out), "-o", str(tmp_path / "x.jsonl")])

    assert told.code == REFUSED
    assert "`c.csv` (changed)" in told.stderr
    assert not (tmp_path / "x.jsonl").exists()


def test_a_forgotten_delimiter_is_told_and_nothing_is_asked(tmp_path: Path) -> None:
    source = tmp_path / "c.csv"
    source.write_text(ROWS)
    told = run(source, tmp_path / "out", "--prompt", "{text}")

    assert told.code == REFUSED
    assert "`read.delimiter=;`" in told.stderr.replace("--set '", "`").replace("'`", "`")
    assert not (tmp_path / "out").exists()
    good = run(source, tmp_path / "out", "--prompt", "{text}", sets={"read.delimiter": ";"})
    assert good.code == OK


def test_a_tab_can_be_written_on_a_command_line(tmp_path: Path) -> None:
    source = tmp_path / "c.csv"
    source.write_text(ROWS.replace(";", "\t"))

    done = rowmill(
        "run",
        [
            *job(source, tmp_path / "out", "--prompt", "{text}"),
            *("--set", "read.delimiter=\\t"),
        ],
    )
    assert done.code == OK


def test_too_long_a_delimiter_is_told_as_such(tmp_path: Path) -> None:
    told = run(tmp_path / "c.csv", tmp_path / "out", sets={"read.delimiter": ";;"})

    assert "expected a string of at most 1 character" in told.stderr


def test_a_kind_that_no_row_failed_with_is_told_as_such(tmp_path: Path) -> None:
    source, out = tmp_path / "c.csv", tmp_path / "out"
    source.write_text("id,text\n1,a\n")
    assert run(source, out, "--prompt", "{text}").code == OK
    told = rowmill("retry", [str(out), "--kind", "invalid"])

    assert told.code == REFUSED
    assert "no row of this run failed with kind `invalid`; none failed at all" in told.stderr


def test_a_run_is_retried_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "in.csv").write_text("id,text\n1,a\n2,\n")
    (tmp_path / "b" / "in.csv").write_text("id,text\n1,other\n")
    first = rowmill(
        "run",
        ["in.csv", "-o", "out", "--engine", "echo", "--prompt", "{text}"],
        cwd=tmp_path / "a",
    )
    again = rowmill("retry", ["../a/out"], cwd=tmp_path / "b")

    assert (first.code, again.code) == (SOME_FAILED, SOME_FAILED)
    assert again.told["ok"] == 1


def test_results_are_published_anew_where_their_record_is_damaged(tmp_path: Path) -> None:
    source, out = tmp_path / "c.csv", tmp_path / "out"
    source.write_text("id,text\n1,a\n")
    assert run(source, out, "--prompt", "{text}").code == OK
    (out / "done.json").write_text("")

    assert run(source, out, "--prompt", "{text}").code == OK
    assert [record["id"] for record in results(out)] == ["1"]
