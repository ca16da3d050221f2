"""Django's migrations: one for each revision of the store's tables."""
