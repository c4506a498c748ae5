"""The places that the negative controls change are there: a moved line is noticed at once, not by the slow suite."""

from __future__ import annotations

import pytest

from tests.kill.mutants import MUTANTS, Mutant, check_fits
from tests.kill.small_job import SOURCE


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_change_fits_once(mutant: Mutant) -> None:
    for change in mutant.changes:
        check_fits(change, (SOURCE / "rowmill" / change.file).read_text("utf-8"))
