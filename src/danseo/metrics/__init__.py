"""Scores of answers against gold: functions of plain lists, on KLUE's scale from 0 to 100."""
