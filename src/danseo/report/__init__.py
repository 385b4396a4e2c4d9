"""Pages about runs: what the report shows in one file and the board shows live."""
