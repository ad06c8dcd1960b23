"""An MCP server with nothing but the standard library: protocol 2025-11-25 on standard input and output."""

import json
import os
import sys
import threading

write = threading.Lock()
cancelled = {}


def send(message):
    with write:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tool(name, **properties):
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema}


TOOLS = [
    tool("echo", text={"type": "string"}),
    tool("wait"),
    tool("die"),
    tool("look", path={"type": "string"}),
    tool("pid"),
]


def look(path):
    try:
        if path.startswith("net:"):
            import socket

            socket.create_connection(("127.0.0.1", int(path[4:])), 2).close()
            return "connected"
        if path.startswith("write:"):
            with open(path[6:], "w") as f:
                f.write("x")
            return "written"
        if path.startswith("status:"):
            with open("/proc/self/status") as f:
                return [line.split()[1] for line in f if line.startswith(path[7:] + ":")][0]
        if path.startswith("env:"):
            return os.environ.get(path[4:], "")
        return ",".join(sorted(os.listdir(path)))
    except OSError as e:
        return "error: " + (e.strerror or str(e))


def call(request):
    params, ident = request["params"], request["id"]
    name, args = params["name"], params.get("arguments", {})
    if name == "die":
        os._exit(3)
    if name == "wait":
        stop = cancelled.setdefault(ident, threading.Event())
        token = params.get("_meta", {}).get("progressToken")
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": "half way"}})
        stop.wait()
        sys.stderr.write("cancelled by the client\n")
        sys.stderr.flush()
        return
    text = {"echo": args.get("text", ""), "pid": str(os.getpid())}.get(name)
    if name == "look":
        text = look(args["path"])
    send({"id": ident, "result": {"content": [{"type": "text", "text": text}]}})


for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        info = {"name": "python", "version": "1"}
        send({"id": request["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": request["id"], "result": {"tools": TOOLS}})
        if "deaf" in sys.argv:
            threading.Event().wait()
    elif method == "tools/call":
        threading.Thread(target=call, args=(request,), daemon=True).start()
    elif method == "notifications/cancelled":
        cancelled.setdefault(request["params"]["requestId"], threading.Event()).set()
    elif "id" in request:
        send({"id": request["id"], "error": {"code": -32601, "message": "method not found"}})
