"""What the cases share: endpoints that end with the module that started them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.cases.endpoint import Endpoint, Serve


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts fresh endpoints; takes the options of `Endpoint`."""
    folder = tmp_path_factory.mktemp("endpoints")
    numbers = itertools.count()
    with ExitStack() as stack:

        def begin(**options: Any) -> Endpoint:
            endpoint = Endpoint(folder / str(next(numbers)), **options)
            return stack.enter_context(closing(endpoint))

        yield begin
