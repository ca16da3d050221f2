import time
import redis
from .fleet import eventually
from .test_cases_duplicates import *
def test_explore(make_fleet):
    fleet = make_fleet("redis-postgresql", FAULTS, transport=IMPATIENT)
    a = fleet.worker("prefork", 1)
    id = fleet.app.long_steps.delay("go").id
    eventually(lambda: entries(fleet, id), what="A runs")
    b = fleet.worker("prefork", 1)
    r = redis.Redis(db=1)
    for _ in range(6):
        time.sleep(1)
        print(with_the_broker(fleet), [(k, r.type(k)) for k in r.keys(f"{fleet.folder.name}*")], r.zrange(f"{fleet.folder.name}:unacked_index", 0, -1, withscores=True), time.time())
    print(fleet.environment["APP_CONF"])
    assert 0
