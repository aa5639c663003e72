"""The mutants fit the engine as it is: each patch applies, and changes nothing but what users get.

Whether each is caught is what `make mutants` finds out, which takes minutes.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import headrace
from tests.chaos.faults import FAULTS
from tests.chaos.faults.processes import POINTS
from tests.chaos.mutants.__main__ import Mutant, mutants
from tests.chaos.mutants.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(headrace.__file__).parent, folder / "src" / "headrace")
    return folder


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_the_patch_applies(mutant: Mutant, copy: Path) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", str(mutant.patch)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"write {mutant.name} anew: {done.stderr}"


def test_there_are_enough_of_them_and_every_scenario_is_used() -> None:
    assert len(mutants()) >= 25
    assert {mutant.scenario for mutant in mutants()} == SCENARIOS.keys()


def test_scenarios_name_faults_and_crash_points_that_there_are() -> None:
    for scenario in SCENARIOS.values():
        for name, given in (blow for blows in scenario.rounds for blow in blows):
            assert name in FAULTS
            assert name != "crash" or given["target"] in POINTS
