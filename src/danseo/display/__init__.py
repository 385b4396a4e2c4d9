"""What a terminal and a table show: escaping, widths, tables and their formats, progress."""
