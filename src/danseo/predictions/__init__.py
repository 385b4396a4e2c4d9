"""Files of predictions, the evidence beside them, and how answers are decoded from it."""
