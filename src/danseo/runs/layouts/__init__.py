"""Runs laid out as the tables that people know."""
