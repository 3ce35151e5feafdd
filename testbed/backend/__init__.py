"""One backend of the fleet: a Flask app with a fault profile (paper, §4.2)."""
