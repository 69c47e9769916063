"""Serves compiled models with Ray: ``pip install attnc[serve]``.

    from attnc import serve
    serve.run(serve.Settings(model="all-MiniLM-L6-v2"))           # in this program, or
    $ serve run attnc.serve:app model=all-MiniLM-L6-v2            # Ray's own command

Ray Serve does what a server does: HTTP, routing, queues, replicas, restarts, rolling updates, metrics. What is here is
the replica: how requests become runs of a model. docs/serving.md is the whole story.
"""

from __future__ import annotations

from typing import Any

from attnc_runtime import Unsupported

try:
    import ray.serve as _ray_serve
except ImportError as error:
    raise Unsupported(f"attnc.serve needs Ray: pip install attnc[serve] ({error})") from None

from ._decoder import Decoder, Request
from ._replica import Replica
from ._settings import Settings
from ._timeline import timeline

__all__ = ["Decoder", "Replica", "Request", "Settings", "app", "run", "timeline"]


def app(args: Settings) -> Any:
    """The ``ray.serve.Application`` that ``args`` describe, for ``ray.serve.run`` and for ``serve run attnc.serve:app``.
    The model is compiled here, once; replicas map the library and share its pages."""
    settings = args.compiled()
    return _ray_serve.deployment(Replica, name=settings.name).options(**settings.deployment()).bind(settings)


def run(settings: Settings, *, route: str = "/", **options: Any) -> Any:
    """Starts (or, where one of this name runs, updates without a lost request) the application, and returns its
    ``DeploymentHandle``. ``options`` are those of ``ray.serve.run``. Requests by HTTP go to port 8000."""
    return _ray_serve.run(app(settings), name=settings.name, route_prefix=route, **options)
