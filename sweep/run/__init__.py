"""One attempt at one run: testbed, load, control loop, artifacts, summary."""
