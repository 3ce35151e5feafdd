"""Configuration files of the programs, as pure functions from data to text."""
