"""One module for each group of tables; `registry` knows them all."""
