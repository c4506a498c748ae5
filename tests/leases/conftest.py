"""Every test that asks for `storage` runs on a folder, on a store in memory and on a real S3 server."""

from pathlib import Path

import pytest

from rowmill.storage import Storage
from tests.leases.places import fresh_local, fresh_memory, fresh_s3


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        return fresh_s3(request.getfixturevalue("s3_server"))
    return fresh_local(tmp_path) if request.param == "local" else fresh_memory(tmp_path)
