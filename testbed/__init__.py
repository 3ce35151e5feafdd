"""One isolated fleet and its load: HAProxy, Prometheus, Redis, N Flask backends and k6.

This room brings a testbed up, runs the load, and tears everything down again. It knows no
policy, no Ray and no Hydra, and never imports `controller` or `serving`.
"""
