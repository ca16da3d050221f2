import time
import pytest
from .fleet import eventually
FAULTS = "tests.integration.app_faults"

def test_explore(make_fleet):
    fleet = make_fleet("redis-postgresql", FAULTS)
    fleet.worker()
    app = fleet.app
    ids = {name: getattr(app, name).delay(*a).id for name, a in [("eats_memory", (False,)), ("killed_once", ("k",)), ("overtime", ())]}
    t = time.time()
    while time.time() - t < 12:
        print(round(time.time() - t, 1), {n: (j.state.value, j.reason and j.reason.value, j.attempts, j.crashes, j.retries) for n, i in ids.items() if (j := fleet.store.job(i))})
        time.sleep(0.5)
    for n, i in ids.items():
        print(n, [(f.attempt, f.fence, f.failure_class, f.message) for f in fleet.store.job(i).failures])
    print(fleet.lines())
    assert 0
