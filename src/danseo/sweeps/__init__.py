"""Many runs: what to run, in which order, on what, and never twice."""
