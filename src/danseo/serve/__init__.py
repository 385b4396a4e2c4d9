"""One model behind HTTP: requests of many clients in common batches, and a page to try it."""
