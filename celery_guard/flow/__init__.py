"""The ways a job travels, one file a journey. No SQL here, and no Celery.

Two files are the whole main line: :mod:`celery_guard.flow.enqueue` (in) and :mod:`celery_guard.flow.run` (through).
"""
