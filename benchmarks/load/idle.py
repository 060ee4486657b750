"""What the service itself takes of a request's time when it has nothing else to do."""

from __future__ import annotations

import http.client
import re
import time
from itertools import cycle, islice
from statistics import median, quantiles

from benchmarks.load.servers import SAMPLES, Running

PAUSES_S = (0.02, 0)
WARM_UP = 20
_ENTRY = re.compile(r"(\w+);dur=([\d.]+)")


def measure_idle(
    server: Running, path: str, *, pause_s: float, requests: int = 300
) -> dict[str, float]:
    """Send pictures one after the other; milliseconds outside inference.

    `service` is `total` less `compute` of `Server-Timing`. `client` is what a client sees less
    `compute`: with the parsing of HTTP, two ways through the kernel, and the client itself.
    """
    service, client, preprocess, queue = [], [], [], []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for number, sample in enumerate(islice(cycle(SAMPLES), WARM_UP + requests)):
        time.sleep(pause_s)
        began = time.perf_counter()
        connection.request("POST", path, sample, {"Content-Type": "image/png"})
        answer = connection.getresponse()
        answer.read()
        seen = 1000 * (time.perf_counter() - began)
        entries = _ENTRY.findall(answer.headers["Server-Timing"])
        stages = {name: float(value) for name, value in entries}
        if number >= WARM_UP:
            service.append(stages["total"] - stages["compute"])
            client.append(seen - stages["compute"])
            preprocess.append(stages["preprocess"])
            queue.append(stages["queue"])
    connection.close()
    return {
        "pause_ms": 1000 * pause_s,
        "service_p50_ms": median(service),
        "service_p99_ms": quantiles(service, n=100)[-1],
        "client_p50_ms": median(client),
        "preprocess_p50_ms": median(preprocess),
        "queue_p50_ms": median(queue),
    }
