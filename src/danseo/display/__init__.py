"""Tables and their formats, escaping and progress bars."""
