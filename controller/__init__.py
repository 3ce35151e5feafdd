"""Observe, decide, act: the closed loop around one HAProxy (paper, §3.1 and §4.3 to §4.5).

This room works against addresses that it is given. It knows no Docker, no Ray and no Hydra, and
never imports `testbed` or `serving`.
"""
