"""Orders."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=80)
    charged = models.BooleanField(default=False)
    mailed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.item} ({'charged' if self.charged else 'open'})"
