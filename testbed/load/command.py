"""How k6 is called."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from testbed.api import LoadSpec

SCRIPTS = Path(__file__).parent

EXIT_CODES = {
    0: "ended normally",
    97: "could not reach its cloud",
    98: "could not reach its cloud",
    99: "crossed a threshold",
    100: "setup() timed out",
    101: "teardown() timed out",
    102: "had a generic time-out",
    103: "could not get its REST API port",
    104: "refused its configuration",
    105: "was ended by a signal",
    106: "could not run its external programs",
    107: "threw an exception in its script",
    108: "was aborted by its script",
    109: "panicked",
}
"""What k6's exit codes say."""

# The load did not run its course: whatever was measured is not the run that was asked for.
CUT_SHORT = frozenset({100, 101, 105, 107, 108, 109})


def k6_arguments(
    k6: str, load: LoadSpec, scripts: Path = SCRIPTS, telemetry: str = ""
) -> list[str]:
    """Command line of one load; `telemetry` is the file that lines go to, for `file` only."""
    arguments = [k6, "run", "--quiet", "--no-usage-report", "--no-color", "--address", ""]
    if load.telemetry == "file":
        arguments += ["--console-output", telemetry, "--log-format", "raw"]
    return [*arguments, str(scripts / f"{load.telemetry}.js")]


def k6_environment(
    load: LoadSpec, run_id: str, frontend_url: str, redis_url: str, summary: str
) -> dict[str, str]:
    """Environment of one load; the addresses are as k6 sees them."""
    spec = asdict(load) | {"run_id": run_id, "url": f"{frontend_url}/work"}
    return {
        "LOAD_SPEC": json.dumps(spec),
        "LOAD_REDIS_URL": redis_url,
        "LOAD_SUMMARY": summary,
    }


def explain_exit(code: int) -> str:
    """What an exit code of k6 means, in words."""
    if code < 0:
        return f"was killed by signal {-code}"
    return f"{EXIT_CODES.get(code, 'failed')} (exit code {code})"
