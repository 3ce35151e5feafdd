"""From a run store to tables and figures: `python -m sweep.report DIR`.

load        run store -> frame of runs, and what had to be left out
tables      frame of runs -> tables of cells (value, n, interval, the paper's value)
terminal, csv_files, html    tables -> where people read them
figures     frame of runs -> the paper's figures and two more
replay      one run, step by step
"""
