"""What people look at: plots and pages made from descriptions, scores and runs."""
