"""How long the paper's command takes to say that all 240 runs are complete.

Beside it, in the same run: plain Hydra's own sweeper and launcher over 240 trivial jobs of the same
configuration, which is what resuming would cost if every job had to be composed to be skipped.

    python bench/resume.py [--repeat 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hydra import compose, initialize_config_dir
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sweep.grid import compose_grid  # noqa: E402 - the checkout's own
from sweep.store.paths import RunStore  # noqa: E402

PLAIN = """
import hydra
@hydra.main(version_base="1.3", config_path={conf!r}, config_name="config")
def job(config):
    pass
job()
"""


def complete_store(root: Path) -> RunStore:
    """A store in which all runs of the paper's grid are complete, as far as resuming looks."""
    store = RunStore(root)
    store.create()
    models = sorted(path.stem for path in (ROOT / "conf/model").glob("*.yaml"))
    jobs = [
        [f"model={model}", f"scale={scale}", f"algorithm={algorithm}", f"sweep.dir={root}"]
        for model in models
        for scale in (3, 5, 7, 9)
        for algorithm in ("leastconn", "roundrobin")
    ]
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        grid = compose_grid(jobs, lambda rest: compose("config", overrides=rest))
    for point in grid.points:
        paths = store.run(point.run_id)
        paths.root.mkdir()
        paths.summary.write_text(json.dumps({"fingerprint": point.fingerprint}))
    return store


def timed(command: list[str], cwd: Path) -> tuple[float, str]:
    """Wall time in s, and what was printed."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def main() -> None:
    """Measure both, alternating, and print medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    ours, plain = [], []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        store = complete_store(scratch / "store")
        script = scratch / "plain.py"
        script.write_text(PLAIN.format(conf=str(ROOT / "conf")))
        grid = ["model=glob(*)", "scale=3,5,7,9"]
        for _ in range(repeat):
            seconds, said = timed(
                [sys.executable, "-m", "sweep", "-m", *grid, f"sweep.dir={store.root}"], ROOT
            )
            assert "240 done, 0 to do" in said, said
            ours.append(seconds)
            # 16 models and 15 seeds: 240 jobs as well.
            seconds, _ = timed(
                [
                    *(sys.executable, str(script), "-m", "hydra/launcher=basic"),
                    *("hydra/sweeper=basic", f"hydra.sweep.dir={scratch}/plain"),
                    *("model=glob(*)", "seed=range(1,16)"),
                ],
                ROOT,
            )
            plain.append(seconds)
    table = Table(title="240 complete runs: time to say so")
    for column in ("", "median s", "min s", "max s"):
        table.add_column(column, justify="right")
    for name, values in (("drainbench", ours), ("plain Hydra", plain)):
        table.add_row(
            name, *(f"{x:.2f}" for x in (statistics.median(values), min(values), max(values)))
        )
    Console().print(table)
    print(f"plain Hydra / drainbench: {statistics.median(plain) / statistics.median(ours):.1f}")


if __name__ == "__main__":
    main()
