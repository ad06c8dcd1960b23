#!/usr/bin/env python3
"""A UI of an agent, with only Python's standard library: it follows a session by server-sent events, sends
each line of standard input, and asks for a y before any call that needs approval.

    SKANDHA_UI_TOKEN=$(cat .data/ui-token) ./chat.py          # or: echo 'what is 2+2?' | ./chat.py
"""
import http.client, json, os, sys, time, urllib.error, urllib.request, uuid

TOKEN = os.environ.get("SKANDHA_UI_TOKEN") or sys.exit("SKANDHA_UI_TOKEN is not set; type: export SKANDHA_UI_TOKEN=$(cat .data/ui-token)")
URL = os.environ.get("SKANDHA_UI", "http://127.0.0.1:7070")
HERE = f"{URL}/v1/agents/main/sessions/{os.environ.get('SKANDHA_SESSION', 'python')}/"


def call(path, body=None, **headers):
    headers |= {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
    data = body and json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(HERE + path + "?ui=python", data, headers), timeout=45)


def post(path, **body):
    """When it returns, the bus has acknowledged the message. A repeated input with the same id counts once."""
    while True:
        try:
            with call(path, body) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code not in (429, 503):
                return print("!", json.load(e)["message"], flush=True)
        except (OSError, http.client.HTTPException):
            pass  # the bridge is not reachable
        time.sleep(1)


def events():
    """All notifications, each once: a client that reconnects with the last id misses nothing."""
    last = {}
    while True:
        try:
            with call("events", **last) as stream:
                event = {}
                for line in stream:
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    event[field] = value
                    if field == "data":
                        name, place, data = event["event"], event.get("id"), json.loads(value)
                        yield name, place, data
                        if at := data["after"] if name == "onAttached" else place:
                            last = {"Last-Event-ID": at}
                        event = {}
        except urllib.error.HTTPError as e:
            if e.code < 500 and e.code != 429:
                sys.exit(f"{e}: {e.read().decode()}")
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(1)


def approve(request):
    why = (request.get("security_warning") or {}).get("message", "")
    print(f"{request['toolName']} {json.dumps(request['args'])}: {why}\nallow it? [y/N]", flush=True)
    yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    post("confirmations", confirmationId=request["confirmationId"], hash=request["hash"], approved=yes)


said = None  # the sequence of the last input; its answer comes later in the log
for name, place, data in events():
    if name == "onNewMessage":
        print(data["content"], flush=True)
    elif name == "onToolCallRequest":
        approve(data)
    elif name == "onConfirmationResolved":
        print(f"({data['outcome']} by {data['by']})", flush=True)
    elif name == "onAttached" and said is None or name == "onReadyForInput" and place and int(place.split(".")[0]) > said:
        for request in data.get("pending", []):
            approve(request)
        receipt = None
        while not receipt:
            if not (line := sys.stdin.readline()):
                sys.exit()
            receipt = line.strip() and post("inputs", input=line.strip(), id=str(uuid.uuid4()))
        said = receipt["sequence"]
