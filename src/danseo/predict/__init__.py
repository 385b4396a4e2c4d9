"""A model on a user's own text: what goes in line by line, and what comes out, field by field."""
