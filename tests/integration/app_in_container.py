"""What a project hands to pytest-celery as the app of its workers: the plug-in's own module, guarded.

The plug-in writes the imports of its tasks and the configuration of the test into it, where their lines stand, and puts it into the container.
"""

from __future__ import annotations

from celery import Celery

from celery_guard import Guard, GuardedTask

imports = None

app = Celery("shop", task_cls=GuardedTask)
config = None

if config:
    app.config_from_object(config)
guard = Guard(app)
