"""Celery's language: its sends become rows, its deliveries become runs, its exceptions become outcomes, and back."""
