"""What people look at, as pictures."""
