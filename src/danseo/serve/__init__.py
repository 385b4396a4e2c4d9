"""One model behind HTTP: requests of many clients answered together, and a page to try it."""
