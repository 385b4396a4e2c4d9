"""Ensembles and soups: runs that combine the predictions, or average the weights, of other runs."""
