"""``python manage.py guard``: the same words, on the app that the Django project imports."""
