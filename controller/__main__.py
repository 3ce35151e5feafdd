"""`python -m controller`: attach the control loop to an HAProxy and a Prometheus that exist."""

from __future__ import annotations

import sys

from controller.cli import main

if __name__ == "__main__":
    sys.exit(main())
