"""The k6 load: its script, its telemetry on the way to Parquet, its result (paper, §4.6)."""
