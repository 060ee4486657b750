"""Start replicas on this machine: `python -m deploy.ray --replicas 2 --port 8000`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

import ray
from ray import serve

from deploy.ray.serve import NAME, Arguments, app
from model.runtime.cpu import cpu_quota
from service.settings import Settings, SettingsError

_STORE_BYTES = 100_000_000
"""Ray's shared memory, which replicas hardly use."""


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser("python -m deploy.ray", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--model", default="", help="bundle; by default what the settings say")
    parser.add_argument("--gpus", type=float, default=0, help="of a replica")
    wanted = parser.parse_args()
    share = cpu_quota() / wanted.replicas
    arguments = Arguments(
        model=wanted.model,
        replicas=wanted.replicas,
        max_replicas=0,
        cpus=int(share) or share,
        gpus=wanted.gpus,
    )
    try:
        grace_s, application = Settings.from_environment().drain_grace_s, app(arguments)
    except SettingsError as error:
        sys.exit(f"deploy.ray: {error}")
    ended = threading.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: ended.set())
    os.umask(0o077)  # Ray's session and its token are this user's alone
    ray.init(
        "local",
        num_cpus=cpu_quota(),
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
    )
    serve.start(
        http_options={"host": wanted.host, "port": wanted.port},
        logging_config={"enable_access_log": False},
    )
    replicas = serve.run(application, name=NAME)
    ended.wait()
    replicas.broadcast("drain").results(return_exceptions=True)
    time.sleep(grace_s)
    serve.delete(NAME)  # proxies go on until the replicas have ended
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
