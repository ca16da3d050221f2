"""Where others' languages are spoken: Celery's, and the frameworks that bring a transaction."""
