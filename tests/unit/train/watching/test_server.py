"""The live page's server: who gets an answer, and that answers are what the folders hold and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from synthetic_runs import make_config, make_metrics, make_run

from envfleet.cli import main
from envfleet.train import read_metrics
from envfleet.train.folders.locking import locked
from envfleet.train.watching.guard import Guard
from envfleet.train.watching.server import make_app, serve

TOKEN = "the-token"
PORT = 8123


class Client:
    """httpx on the application itself, a request at a time; cookies are kept."""

    def __init__(self, app: Any, headers: dict[str, str]) -> None:
        transport = httpx.ASGITransport(app)
        self._http = httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}", headers=headers)

    def request(self, method: str, address: str, **more: Any) -> httpx.Response:
        return asyncio.run(self._http.request(method, address, **more))

    def get(self, address: str, **more: Any) -> httpx.Response:
        return self.request("GET", address, **more)

    def post(self, address: str, **more: Any) -> httpx.Response:
        return self.request("POST", address, **more)


def client_of(*roots: Path, token: str | None = TOKEN) -> Client:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return Client(Guard(make_app(roots), TOKEN, PORT), headers)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs" / "first", seed=0, total_steps=50_000)
    make_run(tmp_path / "runs" / "second", seed=1, total_steps=90_000)
    return tmp_path / "runs"


ADDRESSES = ["/", "/api/runs", "/assets/watch.js", "/api/runs/x/metrics", "/nowhere"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"cookie": f"envfleet-{PORT}=wrong"},
        {"cookie": f"envfleet-1={TOKEN}"},
        {"authorization": f"Bearer {TOKEN}", "host": "evil.example:8123"},
        {"authorization": f"Bearer {TOKEN}", "host": "127.0.0.1:80"},
        {"authorization": f"Bearer {TOKEN}", "host": ""},
    ],
    ids=str,
)
def test_without_the_token_or_for_another_host_there_is_nothing(
    address: str, headers: dict[str, str], runs: Path
) -> None:
    for method in ("GET", "POST"):
        answer = client_of(runs, token=None).request(method, address, headers={"x-envfleet": "1", **headers})
        assert (answer.status_code, answer.content) == (403, b"")
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_the_token_in_the_address_becomes_a_cookie_once(runs: Path) -> None:
    client = client_of(runs, token=None)
    assert client.get("/?token=wrong").status_code == 403
    assert client.get(f"/api/runs?token={TOKEN}").status_code == 403
    answer = client.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict"} <= {*answer.headers["set-cookie"].split("; ")}
    page = client.get("/")  # with the cookie
    assert page.status_code == 200
    assert TOKEN not in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "frame-ancestors 'none'" in policy


def test_an_order_needs_its_header(runs: Path) -> None:
    client = client_of(runs)
    key = client.get("/api/runs").json()[0]["key"]
    assert client.post(f"/api/runs/{key}/stop").status_code == 403
    assert client.post(f"/api/runs/{key}/stop", headers={"x-envfleet": "1"}).status_code == 409


def test_the_numbers_are_those_of_the_folders(runs: Path) -> None:
    client = client_of(runs)
    listed = client.get("/api/runs").json()
    assert {run["name"] for run in listed} == {"first", "second"}
    for run in listed:
        answer = client.get(f"/api/runs/{run['key']}/metrics")
        for name, column in read_metrics(runs / run["name"]).items():
            got = np.array(answer.json()["columns"][name], np.float64)
            np.testing.assert_array_equal(got, column)
            assert run["last"][name] == column[np.isfinite(column)][-1]
        unchanged = client.get(f"/api/runs/{run['key']}/metrics", headers={"if-none-match": answer.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert {run["name"]: run["status"] for run in listed} == {"first": "finished", "second": "stopped"}


def test_a_run_under_way_takes_orders_and_is_asked_for_its_state(runs: Path) -> None:
    client, run = client_of(runs), runs / "second"
    key = next(run["key"] for run in client.get("/api/runs").json() if run["name"] == "second")
    assert client.get(f"/api/runs/{key}/live").json() == {"running": False, "state": {}}
    assert not (run / ".live").exists()
    with locked(run):
        assert client.get(f"/api/runs/{key}/live").json()["running"]
        assert (run / ".live" / "request").exists()
        assert client.post(f"/api/runs/{key}/save", headers={"x-envfleet": "1"}).json() == {"done": "save"}
        assert (run / ".live" / "save").exists()
        assert client.post(f"/api/runs/{key}/delete", headers={"x-envfleet": "1"}).status_code == 404
    (run / ".live" / "frame-0.jpg").write_bytes(b"picture")
    assert client.get(f"/api/runs/{key}/frames/0").content == b"picture"
    assert client.get(f"/api/runs/{key}/frames/1").status_code == 404


def test_nothing_outside_of_the_folders_is_read(tmp_path: Path, runs: Path) -> None:
    secret = make_run(tmp_path / "secret")
    (secret / "showcase.mp4").write_bytes(b"secret")
    (secret / "state.json").write_text('{"secret": 1}')
    inside = make_metrics(runs / "evil", step=[1], episode_return=[1])
    make_config(inside, "ppo", env_id="CartPole-v1", seed=0)
    (inside / "metrics.csv").unlink()
    (inside / "metrics.csv").symlink_to(secret / "metrics.csv")
    (inside / "showcase.mp4").symlink_to(secret / "showcase.mp4")
    (inside / ".live").mkdir()
    (inside / ".live" / "state.json").symlink_to(secret / "state.json")
    (inside / ".live" / "frame-0.jpg").symlink_to("/etc/passwd")
    (runs / "link").symlink_to(secret)
    client = client_of(runs)
    listed = {run["name"]: run for run in client.get("/api/runs").json()}
    assert set(listed) == {"first", "second", "evil"}
    key = listed["evil"]["key"]
    assert client.get(f"/api/runs/{key}/metrics").json() == {"columns": {}, "note": "There are no metrics yet."}
    assert client.get(f"/api/runs/{key}/live").json()["state"] == {}
    for address in ("film", "frames/0", "frames/..%2f..%2fetc", "frames/-1"):
        assert client.get(f"/api/runs/{key}/{address}").status_code == 404
    for address in ("/assets/../server.py", "/assets/..%2fserver.py", "/assets/__init__.py"):
        assert client.get(address).status_code == 404


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"[]", b'{"config": 3, "algo": {}}', b""])
def test_damaged_folders_do_no_harm(content: bytes, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "config.json").write_bytes(content)
    (run / "metrics.csv").write_bytes(content)
    (run / ".live").mkdir()
    (run / ".live" / "state.json").write_bytes(content)
    client = client_of(run)
    (listed,) = client.get("/api/runs").json()
    assert listed["note"]
    assert client.get(f"/api/runs/{listed['key']}/live").status_code == 200


def test_the_command_serves_this_machine_only_until_it_is_ended(runs: Path) -> None:
    command = [sys.executable, "-m", "envfleet", "watch", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.match(r"live page: (http://127\.0\.0\.1:(\d+)/)\?token=([\w-]{43})\n", process.stdout.readline())
        assert found is not None
        request = urllib.request.Request(f"{found[1]}api/runs", headers={"Authorization": f"Bearer {found[3]}"})
        assert len(json.loads(opened(request))) == 2
        addresses = Path("/proc/net/tcp").read_text()
        assert f"0100007F:{int(found[2]):04X} 00000000:0000 0A" in addresses
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130, -2)


def opened(request: urllib.request.Request) -> bytes:
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.URLError:
            time.sleep(0.1)
    raise TimeoutError(request.full_url)


def test_what_is_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nothing")]) == 1
    assert "is no folder" in capsys.readouterr().err


def test_the_address_can_be_opened_as_soon_as_it_is_said(tmp_path: Path) -> None:
    """By a program that reads it, before the server has started."""

    class HasConnectedError(Exception):
        """Ends the server, which has not begun."""

    def connect(address: str) -> None:
        port = int(re.findall(r":(\d+)/", address)[0])
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        raise HasConnectedError

    with pytest.raises(HasConnectedError):
        serve([tmp_path], 0, connect)
