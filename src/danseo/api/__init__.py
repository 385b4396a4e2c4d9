"""danseo from Python: the functions that `import danseo` gives, and what they return."""
