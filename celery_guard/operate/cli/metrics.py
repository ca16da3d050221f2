"""``guard metrics``: the store's metrics, for Prometheus."""

from __future__ import annotations

import signal
import threading

import click

from .target import Target, pass_target

__all__ = ["metrics"]


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9808, show_default=True, help="0 takes one that is free."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--once", is_flag=True, help="Print them once, and end.")
@pass_target
def metrics(target: Target, port: int, host: str, once: bool) -> None:
    """Serve metrics for Prometheus at /metrics, in the foreground.

    They are read from the store at each scrape, for all workers, relays and publishers together. One such process, or one worker with the
    setting `metrics`, is enough.
    """
    target.load_tasks()
    target.store.check()
    from celery_guard.integrations.celery.metrics import make_registry

    registry = make_registry(target.runtime)
    if once:
        from celery_guard.watch.metrics import text_of

        click.echo(text_of(registry), nl=False)
        return
    from celery_guard.watch.serve import MetricsServer

    server = MetricsServer(registry, host, port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.stop, daemon=True).start())
    target.terminal.note(
        f"Serving http://{host}:{server.port}/metrics of {target.settings.shown_store}. Stop with Ctrl-C."
    )
    server.serve()
