"""The eight tasks of KLUE, one module each."""
