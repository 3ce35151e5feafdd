"""The run store: who may write it, where everything is, how results land (docs/run-store.md)."""
