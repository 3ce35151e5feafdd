"""Model registry, weights and llama-server processes (paper, §4.4, Tables 3, 4 and 15).

This room knows no testbed and no controller, and never imports them.
"""
