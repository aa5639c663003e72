"""`python -m tests.chaos.mutants [NAME]...`: are the checker's rules able to fail?

Each patch of this folder puts one bug into a scratch copy of the engine, and a short run that aims at it follows. A
mutant that no rule catches, a patch that no longer applies, or a scenario in which the engine as it is breaks a rule,
makes the whole fail. A patch begins with what it does and the name of its scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import headrace
from tests.chaos.mutants.scenarios import SCENARIOS

PATCHES = Path(__file__).parent
ROOT = PATCHES.parents[2]
GIVE_UP_SECONDS = 240.0
HEADER = re.compile(r"What: (?P<what>.+)\nScenario: (?P<scenario>.+)\n")


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str
    scenario: str
    patch: Path | None = None


@dataclass(frozen=True)
class Result:
    """`caught` by these rules; `error` is why nothing can be said."""

    mutant: Mutant
    caught: Sequence[str]
    seconds: float
    error: str = ""
    says: Sequence[str] = ()

    @property
    def is_fine(self) -> bool:
        return not self.error and bool(self.caught) is (self.mutant.patch is not None)


def mutants() -> list[Mutant]:
    found = []
    for patch in sorted(PATCHES.glob("*.patch")):
        header = HEADER.match(patch.read_text())
        if not header or header["scenario"] not in SCENARIOS:
            raise SystemExit(f"{patch.name} must begin with What: and Scenario:")
        found.append(Mutant(patch.stem, header["what"], header["scenario"], patch))
    return found


def controls(wanted: Sequence[Mutant]) -> list[Mutant]:
    """Each scenario once with the engine as it is."""
    return [Mutant("none", "the engine as it is", name) for name in dict.fromkeys(one.scenario for one in wanted)]


def tried(mutant: Mutant) -> Result:
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        shutil.copytree(
            Path(headrace.__file__).parent, folder / "src" / "headrace", ignore=shutil.ignore_patterns("__pycache__")
        )
        if mutant.patch and (error := _applied(mutant.patch, folder)):
            return Result(mutant, (), time.monotonic() - started, f"the patch does not apply: {error}")
        broken, error = _run(mutant.scenario, folder)
        rules = Counter(each["rule"] for each in broken)
        caught = [rule for rule, _ in rules.most_common()]
        return Result(mutant, caught, time.monotonic() - started, error, [each["says"] for each in broken])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _applied(patch: Path, folder: Path) -> str:
    done = subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _run(scenario: str, folder: Path) -> tuple[list[dict[str, str]], str]:
    """What the checker said, and what went wrong apart from that."""
    command = [sys.executable, "-m", "tests.chaos.mutants.directed", scenario, str(folder / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(ROOT)))}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=GIVE_UP_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [], f"it did not end within {GIVE_UP_SECONDS:g} s"
    if done.returncode:
        return [], done.stderr.strip()[-1000:]
    return [json.loads(line) for line in done.stdout.splitlines()], ""


def table(results: Sequence[Result]) -> Iterator[str]:
    yield "| mutant | scenario | caught by | seconds |"
    yield "| --- | --- | --- | --- |"
    for each in results:
        caught = "; ".join(each.caught[:3]) or ("nothing, as it should" if each.is_fine else "NOTHING")
        told = f"ERROR: {each.error}" if each.error else caught
        yield f"| {each.mutant.name}: {each.mutant.what} | {each.mutant.scenario} | {told} | {each.seconds:.0f} |"


def _recorded(result: Result) -> dict[str, object]:
    one = result.mutant
    told = {"name": one.name, "what": one.what, "scenario": one.scenario}
    return {**told, "caught": list(result.caught), "seconds": round(result.seconds), "error": result.error}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants")
    parser.add_argument("names", nargs="*", help="the beginnings of some mutants' names; nothing means all")
    parser.add_argument("--jobs", type=int, default=1, help="how many to try side by side")
    parser.add_argument("--record", type=Path, help="a file that the results are written to")
    parser.add_argument("--no-controls", action="store_true", help="believe that the scenarios are fair")
    given = parser.parse_args()
    chosen = [one for one in mutants() if not given.names or one.name.startswith(tuple(given.names))]
    wanted = chosen if given.no_controls else [*controls(chosen), *chosen]
    with ThreadPoolExecutor(given.jobs) as pool:
        results = []
        for result in pool.map(tried, wanted):
            results.append(result)
            told = [] if result.is_fine else [*result.says[:5], result.error]
            name = f"{'ok ' if result.is_fine else 'BAD'} {result.mutant.name} ({result.mutant.scenario})"
            print(name, *filter(None, told), sep="\n      ", file=sys.stderr)
    print(*table(results), sep="\n")
    if given.record:
        given.record.write_text(json.dumps([_recorded(each) for each in results], indent=1) + "\n")
    caught = sum(each.is_fine for each in results if each.mutant.patch)
    print(f"\n{caught} of {len(chosen)} mutants caught")
    return 0 if all(each.is_fine for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
