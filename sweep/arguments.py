"""The grammar of this room's command lines, with one line for whatever is wrong."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses in one line that names the way out, instead of a usage block; exit code 2."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"drainbench: {' '.join(message.split())}; {self.prog} --help tells more\n")
