"""``python manage.py test``: which jobs a view enqueues. No worker and no broker."""

from django.test import TestCase

from celery_guard.integrations.django.testing import enqueued_jobs

from .models import Order
from .tasks import charge


class PlacingAnOrder(TestCase):
    def test_an_order_is_charged(self) -> None:
        answer = self.client.post("/orders", {"item": "tea"})
        [job] = enqueued_jobs(charge)
        self.assertEqual(job.kwargs, {"order_id": answer.json()["order"]})

    def test_what_is_sold_out_is_not(self) -> None:
        answer = self.client.post("/orders", {"item": "unobtainium"})
        self.assertEqual(answer.status_code, 409)
        self.assertEqual(enqueued_jobs(), [])
        self.assertEqual(Order.objects.count(), 0)
