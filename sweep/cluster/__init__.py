"""The Ray shell around the pure scheduler: testbed workers, model servers, the driver's loop."""
