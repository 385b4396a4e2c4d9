"""Find, check, download, split and describe data; read users' inputs and predictions."""
