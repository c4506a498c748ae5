"""A store that takes conditional requests and does as it likes is refused before anything is asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.command import REFUSED, rowmill
from tests.servers.s3_server import NoServer, S3Server, juicefs, program


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        program("juicefs")
    except NoServer as error:
        pytest.skip(str(error))
    with juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


@pytest.mark.slow
def test_a_store_that_ignores_conditions_is_refused(gateway: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "x"}\n')
    arguments = [str(source), "-o", "s3://negative/out", "--engine", "echo"]
    arguments += ["--set", "engine.tokenizer=bytes"]

    finished = rowmill("run", arguments, changes=gateway.environment)

    assert finished.code == REFUSED, finished.stderr
    assert "output `s3://negative/out` does not keep conditions: " in finished.stderr
    assert "two workers could overwrite each other" in finished.stderr
    assert gateway.store("negative").list().collect() == []
