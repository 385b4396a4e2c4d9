"""spaCy pipelines as models: trained here, or loaded from a folder."""
