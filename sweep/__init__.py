"""Grid, plan, Ray, run store, tables and figures: the only room that knows the other three."""
