"""What is done about an order, later."""

from typing import Any

from celery import shared_task

from celery_guard import Contract, GuardedTask

from .models import Order


@shared_task(
    base=GuardedTask,
    bind=True,
    contract=Contract(
        owner="payments",  # who is asked about orders that could not be charged
        key="order_id",  # an order is charged once, however often it is sent
    ),
)
def charge(self: Any, order_id: int) -> None:
    # What the ORM writes here, the job that is enqueued here and the end of this job commit together, or not at all.
    with self.job.transaction():
        Order.objects.filter(id=order_id).update(charged=True)
        mail.delay(order_id)


@shared_task(base=GuardedTask, contract=Contract(owner="payments"))
def mail(order_id: int) -> None:
    Order.objects.filter(id=order_id).update(mailed=True)
