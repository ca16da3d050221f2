"""What operators do, one file a journey: who may act, the audit of it, dead letters, replay. No SQL, no Celery, no words of a command line."""
