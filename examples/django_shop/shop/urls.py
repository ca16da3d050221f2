"""Two addresses."""

from django.urls import path

from .views import place, status

urlpatterns = [path("orders", place), path("jobs/<str:id>", status)]
