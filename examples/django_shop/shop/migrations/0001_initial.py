"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=80)),
                ("charged", models.BooleanField(default=False)),
                ("mailed", models.BooleanField(default=False)),
            ],
        )
    ]
