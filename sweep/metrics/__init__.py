"""The metrics of the paper's §3.4, each defined once.

Pure functions over Polars frames and plain counts; nothing here knows where a run store is,
except `aggregate`, which runs them all over one run's folder. docs/metrics.md lists them.

    frames        step records -> two small frames (steps, server states)
    ground_truth  which slots are faulty
    timeline      ever drained, time to action and to resolution, flips, end state
    localization  precision, recall, F1, exact match
    setting       fleet, load and caps of a run's own configuration
    guardrails    which rails a step's raw plan trips
    client        5xx rate, reductions against a static run, cost-effectiveness
    latency       exact value counts, percentiles, means, 10 s windows
    spending      tokens, cadence, steps
    intervals     Wilson, Newcombe, order statistics, bootstrap over whole runs
    aggregate     all of the above for one run, cached beside it
"""

DEFINITIONS_VERSION = 3
"""Raised whenever a definition changes: cached aggregates of another version are recomputed."""

WINDOW_S = 10.0
"""Width of the windows that latency and errors are binned into (paper, §3.4)."""
