"""The live web board: the report's pages over a folder of runs, read-only."""
