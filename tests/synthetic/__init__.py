"""Synthetic run stores with known truth, in the real layout of docs/run-store.md.

run     what one run is to contain, and the truth that follows from it
write   turns it into the files of a run
paper   a whole sweep built to the paper's own counts
demo    the four runs of the demo
"""
