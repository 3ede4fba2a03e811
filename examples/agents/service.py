#!/usr/bin/env python3
"""An agent behind a service, without Ludus: `python service.py 8000` plays as http://127.0.0.1:8000/, as agent.py does."""

import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

rngs = {}  # an episode is open in each slot of each client


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the connection stays open

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        slot = message["client"], message.get("slot")
        reply = {"type": "ready", "serves": "many"}
        if message["type"] == "reset":
            rngs[slot] = random.Random(message["seed"])
        elif message["type"] == "act":
            reply = {"action": rngs[slot].choice(message["legal"])}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass  # a line per request would be too much


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Agent)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
