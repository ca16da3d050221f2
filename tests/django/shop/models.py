"""What the shop sells."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
    charged = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"order {self.number}"
