"""A request places an order; others ask how its job stands."""

from dataclasses import asdict

from django.db import transaction
from django.http import Http404, HttpRequest, JsonResponse

from .celery import guard
from .models import Order
from .tasks import charge


def place(request: HttpRequest) -> JsonResponse:
    # The order and its job commit together: no order without its charge, no charge without its order.
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        job = charge.delay(order_id=order.id)
        if order.item == "unobtainium":
            transaction.set_rollback(True)
            return JsonResponse({"sorry": "sold out"}, status=409)
    return JsonResponse({"order": order.id, "job": job.id}, status=201)


def status(request: HttpRequest, id: str) -> JsonResponse:
    """How a job stands: accepted, running, done, failed or cancelled."""
    # This shop has no tenants; one that has passes that of who is logged in, and a job of another is not found.
    found = guard.jobs.status(id, scope=None)
    if found is None:
        raise Http404
    progress = found.progress and asdict(found.progress)
    return JsonResponse({"status": found.status, "progress": progress, "over": found.is_over})
