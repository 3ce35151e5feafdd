"""What Hydra calls: a sweeper that makes the grid, a launcher that hands it on whole."""
