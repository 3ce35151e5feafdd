"""Figures: one module each; `registry` knows them all."""
