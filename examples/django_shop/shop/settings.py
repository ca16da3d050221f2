"""Django's settings, and Celery's under the prefix CELERY. Database and broker are files beside ``manage.py``."""

import os
from pathlib import Path

HERE = Path(os.environ.get("SHOP_DATA", Path(__file__).parents[1]))

SECRET_KEY = "an example's"
DEBUG = True
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "celery_guard.integrations.django",  # jobs are kept in the database below: nothing more has to be said
    "shop",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": HERE / "shop.db"}}

(HERE / "queue").mkdir(parents=True, exist_ok=True)
CELERY_BROKER_URL = f"files://localhost{HERE / 'queue'}"
CELERY_TASK_IGNORE_RESULT = True
