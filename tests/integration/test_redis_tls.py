"""A store on a Redis that speaks TLS only, with a certificate of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from celery_guard.errors import StoreUnavailableError
from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.testing.conformance.builders import LONG, new_job, succeeded
from celery_guard.testing.conformance.moves import accept, claim, found, take
from celery_guard.testing.servers import private_redis

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``server.pem`` for this machine, ``ca.pem`` that has signed it, and ``stranger.pem`` that has not."""
    folder = tmp_path_factory.mktemp("certificates")
    ca, stranger = trustme.CA(), trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    stranger.cert_pem.write_to_path(folder / "stranger.pem")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    own = str(folder / "server.pem")
    options = ("--tls-cert-file", own, "--tls-key-file", own, "--tls-auth-clients", "no")
    with private_redis(*options, tls=True) as server, server:
        yield server.url


def test_red_1_a_job_goes_all_its_way_over_tls(url: str, folder: Path) -> None:
    with closing(open_store(f"{url}?name=shop&ssl_ca_certs={folder}/ca.pem")) as store:
        store.upgrade()
        store.check()
        job = new_job()
        accept(store, job)
        assert [row.id for row in take(store, "relay")] == [job.id]
        assert store.sent("relay", [job.id], LONG) == 1
        assert store.settle(succeeded(claim(store, job.id)))
        assert found(store, job.id).state is State.SUCCEEDED


@pytest.mark.parametrize("trusted", ["?ssl_ca_certs={folder}/stranger.pem", ""], ids=["another", "the system's"])
def test_red_1_a_server_that_nobody_has_vouched_for_is_refused_at_once_and_said(
    url: str, folder: Path, trusted: str
) -> None:
    given = url + trusted.format(folder=folder)
    with closing(open_store(given)) as store, pytest.raises(StoreUnavailableError) as refused:
        store.check()
    assert f"The certificate of the server of the store in {given} is not trusted" in str(refused.value)
    assert "ssl_ca_certs" in str(refused.value)
    assert "tries" not in str(refused.value)
