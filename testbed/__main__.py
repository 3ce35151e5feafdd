"""`python -m testbed`: a testbed by hand, and what became of the ones that exist."""

from __future__ import annotations

import sys

from testbed.cli import main

if __name__ == "__main__":
    sys.exit(main())
