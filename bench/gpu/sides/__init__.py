"""Who decodes: our engine, transformers, CTranslate2."""
