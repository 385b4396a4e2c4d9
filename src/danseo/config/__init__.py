"""Every setting: declared once as a pydantic field, with its type, default, bounds and meaning."""
