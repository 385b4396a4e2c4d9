"""Run directories: the unit of truth; tables are views of them."""
