"""What a run costs beyond its measured duration, by phase, at N=3.

Makes real runs through the command line: static ones, and ones of SmolLM2-135M on a server that is
warm after the first. Prints the phases of every `summary.json`; the target is 6 s. Prometheus takes
5.1 s to its first targets and up to a scrape interval more to scrape them, so that some runs take
longer; exit code 1 then.

    python bench/run_overhead.py [--duration 20] [--runs 3] [--no-model]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
TARGET_S = 6.0
PHASES = ("testbed_start", "load_start", "load", "collect", "aggregate", "teardown")


def main() -> int:
    """Make the runs and print their phases; 1 where one took longer than the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duration", type=int, default=20, help="measured s of a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each policy")
    parser.add_argument("--no-model", action="store_true", help="static runs only")
    args = parser.parse_args()
    models, modes = "static,local/smollm2-135m", "error_on,none"
    if args.no_model:
        models, modes = "static", "error_on"
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        subprocess.run(
            [
                *(sys.executable, "-m", "sweep", "-m", f"model={models}", "scale=3"),
                *("algorithm=leastconn", f"seed=range(1,{args.runs + 1})", f"mode={modes}"),
                *(f"duration_s={args.duration}", f"sweep.dir={store}", "sweep.dashboard=false"),
            ],
            cwd=ROOT,
            check=True,
        )
        summaries = [json.loads(p.read_text()) for p in sorted(store.glob("runs/*/summary.json"))]
    table = Table(title="Seconds by phase")
    table.add_column("run")
    for phase in (*PHASES, "overhead"):
        table.add_column(phase, justify="right")
    for summary in summaries:
        seconds = summary["phases_s"]
        table.add_row(
            summary["run_id"], *(f"{seconds[phase]:.2f}" for phase in (*PHASES, "overhead"))
        )
    Console(width=140).print(table)
    overheads = [summary["phases_s"]["overhead"] for summary in summaries]
    within = sum(overhead <= TARGET_S for overhead in overheads)
    print(
        f"overhead median {statistics.median(overheads):.2f} s, worst {max(overheads):.2f} s; "
        f"{within} of {len(overheads)} runs within {TARGET_S:g} s"
    )
    return 0 if within == len(overheads) else 1


if __name__ == "__main__":
    sys.exit(main())
