"""Cross-fitted hard examples and likely label errors."""
