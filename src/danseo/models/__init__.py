"""Models: everything that answers examples with predictions."""
