"""`python -m sweep [-m] OVERRIDES`: run what is missing of a sweep.

Exit codes: 0 all asked-for runs are complete; 1 some run failed for good; 2 the request itself
is wrong; 130 stopped by Ctrl-C, SIGTERM or a terminal that was closed.
"""

from __future__ import annotations

import sys
from types import FrameType

from sweep.signals import on_stop

STOPPED = "drainbench: stopped. Run the same command again to complete what is missing."


def main() -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the command in one line from its first import on.

    While runs are under way it is the runner that takes the signals, and stops them first.
    """
    on_stop(_as_interrupt)
    try:
        from sweep import command

        command.main()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        raise SystemExit(130) from None


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
