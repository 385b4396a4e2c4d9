"""What leaves a run: the table of formats, one file each."""
