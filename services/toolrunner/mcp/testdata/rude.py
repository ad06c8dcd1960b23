"""An MCP server, with the standard library alone, that breaks the rules as a call asks it to."""
import json
import sys


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(id, text):
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


held = []


def call(id, how):
    if how == "hold":
        held.append(id)
    elif how == "stray":
        print("npm WARN deprecated\x1b[31m thing", flush=True)
        print('{"level": "info"}', flush=True)
        answer(id, "after the stray lines")
    elif how == "release":
        answer(id, "released")
        while held:
            answer(held.pop(), "held")
    elif how == "null":
        answer(None, "x")
    elif how == "list":
        answer([id], "x")
    elif how == "error":
        send({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}})
    elif how == "tag":
        send({"id": id, "result": {"content": []}})
    elif how == "refuse":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "refused"}})
    elif how == "big":
        answer(id, "x" * (17 << 20))
    elif how == "batch":
        sys.stdout.write(json.dumps([{"jsonrpc": "2.0", "id": id, "result": {"content": []}}, 7]) + "\n")
        sys.stdout.flush()
    elif how == "babble":
        while True:
            print("babble", flush=True)


for line in sys.stdin:
    m = json.loads(line)
    id, method = m.get("id"), m.get("method")
    if method == "initialize":
        send({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "rude\nserver", "version": "1\r\n2"}}})
    elif method == "tools/list":
        schema = {"type": "object"}
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": [
            None, {"name": "good", "inputSchema": schema}, {"name": 5, "inputSchema": schema}, "tool"]}})
    elif method == "tools/call":
        call(id, m["params"]["arguments"]["how"])
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
