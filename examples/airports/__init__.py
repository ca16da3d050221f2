"""A first example: a file is imported, one guarded job a row. Read ``tasks.py``, then ``load.py``; ``plain.py`` is there to compare."""
