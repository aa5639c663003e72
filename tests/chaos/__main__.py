"""`python -m tests.chaos`: one run of the fault machine. Exit 0: fine; 1: a rule is broken; 2: it proves nothing."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from headrace.process import run_loop
from tests.chaos import report
from tests.chaos.machine import Wish, perform


def main() -> int:
    given = _arguments()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    only = tuple(name for name in given.only.split(",") if name)
    wish = Wish(given.seed, given.minutes, given.database, only)
    done = run_loop(perform(wish, folder))
    told = report.summary(wish, done)
    (folder / "report.json").write_text(json.dumps(told, indent=1) + "\n")
    print(report.text(told))
    if given.record:
        report.add_up(Path(given.record), told)
    if told["violations"] or told["problems"] or given.folder:
        print(f"what the run left is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if told["violations"] else 2 if told["problems"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--only", default="", help="names of faults and crash points, with commas between them")
    parser.add_argument("--folder", help="where the run leaves its files; it should not be there yet")
    parser.add_argument("--record", help="a file that the report is added to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
