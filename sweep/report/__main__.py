"""`python -m sweep.report DIR`: the tables and figures of a run store.

Exit codes: 0 the report was made, whatever had to be left out of it (it says what); 2 there is
nothing to report on, or the request is wrong; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sweep.arguments import Parser
from sweep.report.errors import ReportError


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m sweep.report", description="Tables and figures of a run store.")
    p.add_argument("dir", type=Path, metavar="DIR", help="run store, such as outputs/main")
    p.add_argument(
        "--tables",
        metavar="LIST",
        help="only these, such as 6,8 or runs-client (names are in docs/metrics.md)",
    )
    p.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained HTML file")
    p.add_argument("--csv", type=Path, metavar="DIR", help="write all tables as CSV files")
    p.add_argument("--figures", type=Path, metavar="DIR", help="write all figures, SVG and PNG")
    p.add_argument("--replay", metavar="RUN", help="print the steps of one run instead of tables")
    p.add_argument("--runs", action="store_true", help="print every run, however many there are")
    p.add_argument(
        "--from-raw", action="store_true", help="compute everything anew from requests.parquet"
    )
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the report; returns the exit code."""
    args = parser().parse_args(arguments)
    # Matrices of resamples are small: BLAS threads would wait for one another longer than compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from sweep.report.command import report

        return report(args)
    except ReportError as error:
        print(f"drainbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
