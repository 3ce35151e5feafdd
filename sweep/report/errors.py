"""Errors of the report.

ReportError
└── NotAStore    there is no run store, or no complete run in it; exit code 2
"""

from __future__ import annotations


class ReportError(Exception):
    """The report can't be made; the message is one line with the way out. Exit code 2."""


class NotAStore(ReportError):
    """There is no run store at the given place, or no complete run in it."""
