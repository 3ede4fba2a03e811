"""`ludus push` and `ludus pull` with huggingface_hub itself, against a server in this process that speaks what it asks of the Hub."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pytest

import ludus

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_token"


class Hub(BaseHTTPRequestHandler):
    """Repositories of models in memory: one commit each."""

    protocol_version = "HTTP/1.1"
    repos: ClassVar[dict[str, dict[str, bytes]]] = {}
    requests: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        """Requests are in `requests`."""

    def reply(self, code: int, data: object = None, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        content = body or (b"" if data is None else json.dumps(data).encode())
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        type(self).requests.append(f"POST {path}")
        body = self.body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.reply(401, {"error": "Invalid credentials"}, {"X-Error-Message": "Invalid credentials"})
        elif path == "/api/repos/create":
            facts = json.loads(body)
            repo = f"{facts['organization']}/{facts['name']}" if facts.get("organization") else f"me/{facts['name']}"
            type(self).repos.setdefault(repo, {})
            self.reply(200, {"url": f"http://{self.headers['Host']}/{repo}", "id": repo, "name": repo})
        elif path == "/api/validate-yaml":
            self.reply(200, {"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.reply(200, {"files": files})
        elif "/commit/" in path:
            repo = path.removeprefix("/api/models/").partition("/commit/")[0]
            files = self.repos[repo]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del files[line["value"]["path"]]
            self.reply(
                200,
                {
                    "commitUrl": f"http://{self.headers['Host']}/{repo}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "success": True,
                    "pullRequestUrl": None,
                },
            )
        else:
            self.reply(404)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        type(self).requests.append(f"{self.command} {path}")
        if path.startswith("/api/models/"):
            self._of_models(path.removeprefix("/api/models/"))
        else:
            self._file(*path.strip("/").partition("/resolve/")[::2])

    do_HEAD = do_GET

    def _of_models(self, path: str) -> None:
        repo = "/".join(path.split("/")[:2])
        if repo not in self.repos:
            self.reply(
                404,
                {"error": "Repository not found"},
                {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
            )
        elif "/tree/" in path:
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.repos[repo].items()
            ]
            self.reply(200, rows)
        else:
            siblings = [{"rfilename": name} for name in self.repos[repo]]
            self.reply(
                200, {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            )

    def _file(self, repo: str, rest: str) -> None:
        content = self.repos.get(repo, {}).get(rest.partition("/")[2])
        if content is None:
            self.reply(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            etag = hashlib.sha1(content).hexdigest()
            self.reply(200, headers={"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body=content)


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
@pytest.mark.long
def test_the_real_client(address: str, tmp_path: Path) -> None:
    kuhn = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=1)
    ludus.run(kuhn, run_dir=tmp_path / "runs" / "mine", report=False)
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": str(Path(ludus.__file__).parents[1]),
    }

    def runs(*line: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from ludus.cli.start import script; script()", *line]
        return subprocess.run(
            command, cwd=tmp_path, env={**environment, **changes}, capture_output=True, text=True, timeout=120
        )

    pushed = runs("push", "mine@best", "hf://me/kuhn")
    assert pushed.returncode == 0, pushed.stderr
    files = Hub.repos["me/kuhn"]
    assert {"manifest.json", "README.md"} < set(files)
    assert files["README.md"].startswith(b"---\nlibrary_name: ludus\n")
    twice = runs("push", "mine", "hf://me/kuhn")
    assert (twice.returncode, "has an entry already" in twice.stderr) == (2, True), twice.stderr
    replaced = runs("push", "mine", "hf://me/kuhn", "--replace", "--members")
    assert replaced.returncode == 0, replaced.stderr
    manifest = json.loads(Hub.repos["me/kuhn"]["manifest.json"])
    assert {name for name in Hub.repos["me/kuhn"] if name.startswith("policies/")} == {
        m["file"] for m in manifest["policies"]
    }
    pulled = runs("pull", "hf://me/kuhn")
    assert pulled.returncode == 0, pulled.stderr
    played = runs("evaluate", "kuhn", "--episodes", "20")
    assert played.returncode == 0, played.stderr
    gone = runs("pull", "hf://me/gone")
    assert (gone.returncode, "'hf://me/gone' cannot be read" in gone.stderr) == (2, True), gone.stderr
    refused = runs("push", "mine", "hf://me/other", HF_TOKEN="wrong")
    assert (refused.returncode, "'hf://me/other' cannot be written" in refused.stderr) == (2, True), refused.stderr
    away = runs("pull", "hf://me/kuhn", "elsewhere", HF_ENDPOINT="http://127.0.0.1:9")
    assert (away.returncode, "cannot be read" in away.stderr) == (2, True), away.stderr
