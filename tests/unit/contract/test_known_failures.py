"""The table of known failures names classes that exist: a slip of the pen would make a failure unknown in silence."""

from __future__ import annotations

import sys

import pytest

from celery_guard.contract.known_failures import KNOWN

#: Kept for versions that are still in use, and in no current one.
GONE = {
    "asyncio.exceptions.TimeoutError": (3, 11),
    "concurrent.futures._base.TimeoutError": (3, 11),
}
#: Modules of libraries' older versions.
OLDER = {"stripe.error"}

MODULES = sorted({name.rpartition(".")[0] for name in KNOWN})


@pytest.mark.parametrize("module", MODULES)
def test_known_failures_are_classes_of_these_very_names(module: str) -> None:
    library = pytest.importorskip(module, exc_type=ImportError)
    for dotted in (name for name in KNOWN if name.rpartition(".")[0] == module):
        found = getattr(library, dotted.rpartition(".")[2], None)
        if sys.version_info >= GONE.get(dotted, (4, 0)) or (found is None and module in OLDER):
            continue
        assert isinstance(found, type), dotted
        assert issubclass(found, BaseException), dotted
        assert f"{found.__module__}.{found.__qualname__}" == dotted


def test_the_table_is_not_empty() -> None:
    assert len(KNOWN) > 100
