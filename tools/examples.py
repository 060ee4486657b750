"""The examples in the OpenAPI document: answers of the bundles that ship.

`python -m tools.examples` writes them. Tests call each operation as its examples have it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from service.api.models import ModelsAnswer, summarise
from service.app import create_app
from service.http.openapi import EXAMPLES
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.settings import Settings
from tools.client import Json, operations

if TYPE_CHECKING:
    from fastapi import FastAPI
    from httpx import Client, Response

ADMIN_KEY = "a-key-of-examples-alone"


def call(client: Client, method: str, path: str, operation: Json, **body: Any) -> Response:
    """The answer to the examples of parameters and, if no other body is given, of the JSON."""
    given: dict[str, Json] = {"path": {}, "query": {}}
    for parameter in operation.get("parameters", ()):
        schema, place = parameter["schema"], parameter["in"]
        if place in given and (parameter["required"] or "examples" in schema):
            given[place][parameter["name"]] = schema["examples"][0]
    content = operation.get("requestBody", {}).get("content")
    body = body or ({"json": content["application/json"]["example"]} if content else {})
    headers = {"X-API-Key": ADMIN_KEY, **body.pop("headers", {})}
    answer: Response = client.request(
        method, path.format(**given["path"]), params=given["query"], headers=headers, **body
    )
    return answer


def shorten(value: Any) -> Any:
    """Long lists and images cut: an example shows the form."""
    match value:
        case dict():
            return {name: shorten(one) for name, one in value.items()}
        case list():
            flat = not any(isinstance(one, list | dict) for one in value)
            return [shorten(one) for one in value[: 16 if flat else 2]]
        case str() if value.startswith("data:"):
            return f"{value[:40]}…"
    return value


def main() -> None:
    """Write the examples."""
    from starlette.testclient import TestClient  # noqa: PLC0415  warns that httpx2 is newer

    examples = json.loads(EXAMPLES.read_text())
    settings = Settings(device="cpu", threads=1, admin_keys=(SecretStr(ADMIN_KEY),))
    app = create_app(settings, open_engine(load_runtimes(settings)))
    with TestClient(app, base_url="http://localhost") as client:
        app.state.reload = partial(no_reload, app)
        for method, path, operation in operations(app.openapi()):
            own = examples.get(operation["operationId"], {})
            if "requestBody" in operation:  # a new view's is a picture
                own.setdefault("request", examples["classify"]["request"])
            body = {"json": own["request"]} if "request" in own else {}
            answer = call(client, method, path, operation, **body).raise_for_status()
            kind = answer.headers["content-type"].partition(";")[0]
            if kind == "application/json":
                examples[operation["operationId"]] = {**own, "answer": shorten(answer.json())}
    for member in ("training", "sha256", "graphs"):
        del examples["show_model"]["answer"][member]
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in examples.items()]
    EXAMPLES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


async def no_reload(app: FastAPI) -> ModelsAnswer:
    """The same bundles stay."""
    return summarise(app.state.loaded, app.state.settings)


if __name__ == "__main__":
    main()
