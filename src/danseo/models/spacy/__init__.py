"""spaCy pipelines as models: trained here, or brought along."""
