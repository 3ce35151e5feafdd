"""The grammar of this room's command lines, with one line for whatever is wrong."""

from __future__ import annotations

import argparse
import math
import re
from typing import NoReturn
from urllib.parse import urlsplit


class Parser(argparse.ArgumentParser):
    """Refuses in one line that names the way out, instead of a usage block; exit code 2."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, f"error: {' '.join(message.split())}; {self.prog} --help tells more\n")


def not_negative(text: str) -> float:
    """A finite number, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, 0 or more")
    return value


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def url(text: str) -> str:
    """An address of HTTP, with a host and, where it has one, a possible port."""
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} does not start with http:// or https://")
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", text)
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"{text!r} names no host and port, as in http://host:9090")
    return text


def seconds(text: str) -> float:
    """A time above 0, in s; neither infinite nor nan."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value
