"""Every test that asks for `storage` runs on a folder and on an object store."""

from pathlib import Path

import pytest

from rowmill.storage import Storage
from tests.leases.places import fresh_local, fresh_memory


@pytest.fixture(params=[fresh_local, fresh_memory])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = request.param(tmp_path)
    return made
