"""Skandha with Python's standard library alone: NATS' text protocol on a socket.

SKANDHA_NATS says where the bus is:  eval "$(bin/skandha env --data .data)"
"""
import json, os, secrets, signal, socket, sys, threading, time, urllib.parse
from concurrent.futures import ThreadPoolExecutor


class Bus:
    """A connection. Iterate over it for (subject, reply subject, headers, body); OSError when it breaks."""

    def __init__(self, *subscriptions):  # each "SUBJECT" or "SUBJECT QUEUE-GROUP"
        url = urllib.parse.urlsplit(os.environ.get("SKANDHA_NATS") or sys.exit('SKANDHA_NATS is not set; type: eval "$(bin/skandha env --data .data)"'))
        self.lock = threading.Lock()
        self.socket = socket.create_connection((url.hostname, url.port or 4222), timeout=5)
        self.socket.settimeout(None)
        self.stream = self.socket.makefile("rb")
        user, password = (urllib.parse.unquote(s or "") for s in (url.username, url.password))
        who = {"user": user, "pass": password} if password else {"auth_token": user}
        self.send("CONNECT " + json.dumps({"verbose": False, "headers": True, "no_responders": True, **who}))
        for n, subscription in enumerate(subscriptions, 1):
            self.send(f"SUB {subscription} {n}")

    def send(self, line, payload=b""):
        with self.lock:
            self.socket.sendall(line.encode() + b"\r\n" + payload)

    def publish(self, subject, body, reply="", error=""):
        head = b"NATS/1.0\r\n" + (f"Skandha-Error: {error}\r\n" if error else "").encode() + b"\r\n"
        data = json.dumps(body).encode()
        self.send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}", head + data + b"\r\n")

    def __iter__(self):
        for line in iter(self.stream.readline, b""):
            verb, *args = line.decode().split()
            if verb == "PING":
                self.send("PONG")
            elif verb == "-ERR":
                raise ConnectionError(line.decode().strip())
            elif verb in ("MSG", "HMSG"):  # SUBJECT SID [REPLY] [BYTES-OF-HEADERS] BYTES-OF-ALL
                data = self.stream.read(int(args[-1]) + 2)[:-2]
                head = int(args.pop(-2)) if verb == "HMSG" else 0
                status, *lines = data[:head].decode().split("\r\n")  # "NATS/1.0 503" means: nobody listens
                headers = dict(line.split(": ", 1) for line in lines if ": " in line)
                yield args[0], args[2] if len(args) == 4 else "", {"Status": status[9:12], **headers}, data[head:]
        raise ConnectionError("the bus has closed the connection")


def serve(manifest, handlers):
    """Registers a plugin and answers; handlers is {subject: function of the request's JSON}.

    Ctrl-C, SIGTERM and `skandha plugins unload` end it: what has begun is finished, nothing is left.
    When the bus goes away it waits until it is back.
    """
    me = "py-" + secrets.token_hex(8)  # the instance: new at each start
    name, manifest = manifest["name"], {**manifest, "instance": me}
    lease, leaving, work, pool = {}, threading.Event(), [], ThreadPoolExecutor(16)

    def keep(bus):  # registers, renews the lease; when leaving it drains, and then is gone
        try:
            while True:
                ended = leaving.is_set() and (lease.get("state") != "draining" or all(w.done() for w in work))
                verb = "unregister" if ended else "heartbeat" if lease else "register"
                body = {"unregister": {"instance": me}, "register": manifest,
                        "heartbeat": {"instance": me, "hash": lease.get("hash")}}[verb]
                bus.publish(f"plugin.{verb}.{name}", body, reply=f"reply.core.{me}.1")
                time.sleep(0.3) if leaving.is_set() else leaving.wait(lease.get("ttl_ms", 3000) / 3000)
        except OSError:
            pass  # run notices, too

    def registry(headers, body):  # what the registry answers: a lease or an error
        if headers["Status"] == "503":
            return  # no core is up; keep asks again
        answer = json.loads(body)
        if "Skandha-Error" in headers:
            if leaving.is_set() or not (lease or answer["retryable"]):
                sys.exit(f"{name}: {answer['message']}")
            if answer["code"] == "not_found":  # we were silent for too long: register again
                lease.clear()
            else:
                print(f"{name}: {answer['message']}", file=sys.stderr)
            return
        if answer["state"] != lease.get("state"):
            print(f"{name} is {answer['state']}", answer.get("reason", ""), file=sys.stderr)
        lease.update(answer)
        if lease["state"] == "draining":
            leaving.set()
        elif lease["state"] == "gone":
            sys.exit()

    def answer(bus, handler, reply, headers, body):
        if time.time() * 1000 > float(headers.get("Skandha-Deadline", "inf")):
            return  # nobody waits for it any more
        try:
            bus.publish(reply, handler(json.loads(body)))
        except Exception as e:
            bus.publish(reply, {"code": "internal", "message": f"{name}: {e}", "retryable": False}, error="internal")

    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: leaving.set())
    while not leaving.is_set():
        try:
            bus = Bus(f"reply.*.{me}.*", *(f"{subject} {name}" for subject in handlers))
            threading.Thread(target=keep, args=(bus,), daemon=True).start()
            for subject, reply, headers, body in bus:
                if subject.startswith("reply."):
                    registry(headers, body)
                else:
                    work[:] = [w for w in work if not w.done()]
                    work.append(pool.submit(answer, bus, handlers[subject], reply, headers, body))
        except OSError as e:
            print(f"{name}: {e}; trying again", file=sys.stderr)
            leaving.wait(1)
