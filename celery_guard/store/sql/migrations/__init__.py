"""The versions of the tables, oldest first. Run by :mod:`celery_guard.store.sql.schema`, never by hand."""
