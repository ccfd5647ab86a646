"""A program of Flask-WebSub 0.4.1, unmodified: its subscriber, its publisher and its hub on one port.

Run with a folder for its state and the URL of the hub that its topic names. What its hub gives to Celery runs in
threads, and is not tried again.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flask
from flask_websub.hub import Hub, SQLite3HubStorage
from flask_websub.publisher import init_publisher, publisher
from flask_websub.subscriber import SQLite3SubscriberStorage, SQLite3TempSubscriberStorage, Subscriber, discover
from werkzeug.serving import make_server

TOPIC_TYPE = "text/x-own"


class Task:
    """A task as Celery has them: `delay` begins it apart."""

    def __init__(self, function: Callable[..., Any], *, is_bound: bool) -> None:
        self._function, self._first = function, (self,) if is_bound else ()
        self.request = type("Request", (), {"retries": 0})

    def delay(self, *arguments: Any) -> None:
        threading.Thread(target=self._function, args=(*self._first, *arguments), daemon=True).start()

    def retry(self, **_: Any) -> None:
        """Not tried again."""


class Tasks:
    """What its hub uses of Celery."""

    def task(self, *, bind: bool = False, **_: Any) -> Callable[[Callable[..., Any]], Task]:
        return lambda function: Task(function, is_bound=bind)


def program(folder: Path, hub_url: str) -> flask.Flask:
    """The application: what it has seen at `/seen`, what it is to do at `/do/…`, its topic at `/topic`."""
    app, seen, content = flask.Flask("websub"), list[list[str]](), ["first"]
    app.config.update(PUBLISH_SUPPORTED=True, AUTO_SET_SECRET=False, HUB_MIN_LEASE_SECONDS=1)
    storages = SQLite3SubscriberStorage(folder / "s.sqlite"), SQLite3TempSubscriberStorage(folder / "t.sqlite")
    subscriber = Subscriber(*storages)
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    subscriber.add_listener(lambda topic, _id, body: seen.append(["content", topic, body.decode()]))
    subscriber.add_success_handler(lambda topic, _id, mode: seen.append([mode, topic, ""]))
    subscriber.add_error_handler(lambda topic, _id, reason: seen.append(["denied", topic, reason]))
    app.register_blueprint(Hub(SQLite3HubStorage(folder / "h.sqlite"), Tasks()).build_blueprint(url_prefix="/hub"))
    init_publisher(app)

    @app.get("/seen")
    def what_was_seen() -> flask.Response:
        return flask.jsonify(seen)

    @app.get("/topic")
    @publisher(hub_url=hub_url)
    def topic() -> flask.Response:
        return flask.Response(content[0], content_type=TOPIC_TYPE)

    @app.post("/do/<what>")
    def do(what: str) -> str:
        told = flask.request.get_json()
        if what == "publish":
            content[0] = told["content"]
        elif what == "discover":
            return str(subscriber.subscribe(**discover(told["url"])))
        elif what == "subscribe":
            return str(subscriber.subscribe(**told))
        elif what == "renew":
            subscriber.renew(told["id"])
        else:
            subscriber.unsubscribe(told["id"])
        return ""

    return app


def main() -> None:
    """Serve until it is ended; its URL is one line of JSON on standard output."""
    server = make_server("127.0.0.1", 0, program(Path(sys.argv[1]), sys.argv[2]), threaded=True)
    print(json.dumps({"url": f"http://127.0.0.1:{server.port}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
