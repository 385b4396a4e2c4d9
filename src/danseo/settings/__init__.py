"""How settings are declared, named, checked, written and kept readable; the settings themselves are in config.py."""
