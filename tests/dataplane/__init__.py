"""HAProxy's Data Plane API as its published description has it."""
