"""A process that owns a testbed under load until it is killed: `owner KIND RUN_ID OUT_DIR`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from testbed.factory import create
from tests.testbed import builders


def main(kind: str, run_id: str, out_dir: str) -> None:
    """Start, load, say so, and wait."""
    spec = replace(builders.spec(2, builders.load(vus=4, duration_s=600)), run_id=run_id)
    testbed = create(kind, spec)
    testbed.start()
    testbed.start_load(Path(out_dir))
    print("loaded", flush=True)
    testbed.wait_load()


if __name__ == "__main__":
    main(*sys.argv[1:])
