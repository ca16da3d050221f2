"""What a job promises: values and pure rules. Nothing here reads a clock, a database or a broker.

``contract`` is what a person declares, ``resolve`` joins it with what Celery's own options declare, ``classify`` reads
a failure, ``key`` names a call, ``codec`` asks whether a payload comes back as it went.
"""

from .contract import Contract
from .retry import Retry
from .timing import Timing

__all__ = ["Contract", "Retry", "Timing"]
