"""Driver `local`: the fleet and its load as processes of this machine, on loopback."""
