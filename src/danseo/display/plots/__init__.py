"""Figures as plain data (figures.py), drawn as SVG for pages (svg.py) and by matplotlib to files (image_files.py)."""
