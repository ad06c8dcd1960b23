"""Skandha with only Python's standard library: NATS's text protocol on a socket.

SKANDHA_NATS says where the bus is, and who you are:  eval "$(bin/skandha env --data .data NAME)"
That also sets SKANDHA_DATA, whose run.json says where the bus is now, in case it has moved.
"""
import collections, json, os, re, secrets, signal, socket, sys, threading, time, urllib.parse
from concurrent.futures import ThreadPoolExecutor


def where():
    """The URL of the bus, as of now, and your user, or token, and password."""
    url = urllib.parse.urlsplit(os.environ.get("SKANDHA_NATS") or sys.exit('SKANDHA_NATS is not set; type: eval "$(bin/skandha env --data .data NAME)"'))
    who = [urllib.parse.unquote(s or "") for s in (url.username, url.password)]
    try:
        with open(os.path.join(os.environ["SKANDHA_DATA"], "run.json")) as f:
            url = urllib.parse.urlsplit(json.load(f)["url"])
    except (KeyError, OSError, ValueError):
        pass  # the system is down, or on another machine
    return url, *who


class Refused(ConnectionError):
    """The bus does not accept the credentials, however often they are shown."""


def failure(line):
    """What a line of the bus that begins with -ERR means."""
    text = line.decode().strip()
    if re.search("Authorization|Expired|Revoked", text):
        return Refused(f"the bus refuses the credentials: {text}: they are missing, revoked, replaced or expired; to get new ones: skandha plugins invite NAME")
    return ConnectionError(text)


class Bus:
    """A connection. Iterate over it for (subject, reply subject, headers, body); OSError when it breaks."""

    def __init__(self, *subscriptions):  # each "SUBJECT" or "SUBJECT QUEUE-GROUP"
        url, user, password = where()
        self.lock = threading.Lock()
        self.socket = socket.create_connection((url.hostname, url.port or 4222), timeout=5)
        self.stream = self.socket.makefile("rb")
        who = {"user": user, "pass": password} if password else {"auth_token": user, "jwt": user}
        line = self.stream.readline()  # INFO, unless another program has the port now
        if line:
            self.send("CONNECT " + json.dumps({"verbose": False, "headers": True, "no_responders": True, **who}) + "\r\nPING")
        while line and not line.startswith(b"PONG"):  # it has accepted the credentials
            line = self.stream.readline()
            if line.startswith(b"-ERR"):
                raise failure(line)
        if not line:
            raise ConnectionError("the bus has closed the connection")
        self.socket.settimeout(None)
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
                raise failure(line)
            elif verb in ("MSG", "HMSG"):  # SUBJECT SID [REPLY] [BYTES-OF-HEADERS] BYTES-OF-ALL
                data = self.stream.read(int(args[-1]) + 2)[:-2]
                head = int(args.pop(-2)) if verb == "HMSG" else 0
                status, *lines = data[:head].decode().split("\r\n")  # "NATS/1.0 503" means no responders
                headers = dict(line.split(": ", 1) for line in lines if ": " in line)
                yield args[0], args[2] if len(args) == 4 else "", {"Status": status[9:12], **headers}, data[head:]
        raise ConnectionError("the bus has closed the connection")


def serve(manifest, handlers):
    """Registers a plugin and answers; handlers is {subject: function of the request's JSON}.

    Ctrl-C, SIGTERM and `skandha plugins unload` end it: what has begun is finished, nothing is left.
    When the bus goes away it waits until it is back. The same call asked twice runs once.
    """
    me = "py-" + secrets.token_hex(8)  # the instance: new at each start
    name, manifest = manifest["name"], {**manifest, "instance": me}
    lease, leaving, heard = {}, threading.Event(), threading.Event()
    work, pool, answers = [], ThreadPoolExecutor(16), Answers()

    def keep(bus):  # registers, renews the lease; when leaving it drains, and then is gone
        try:
            while True:
                ended = leaving.is_set() and (lease.get("state") != "draining" or all(w.done() for w in work))
                verb = "unregister" if ended else "heartbeat" if lease else "register"
                body = {"unregister": {"instance": me}, "register": manifest,
                        "heartbeat": {"instance": me, "hash": lease.get("hash")}}[verb]
                heard.clear()
                bus.publish(f"plugin.{verb}.{name}", body, reply=f"reply.{name}.core.{me}.1")
                if leaving.is_set():
                    time.sleep(0.3)
                elif heard.wait(1):  # else again at once: it may have been lost
                    leaving.wait(lease.get("ttl_ms", 3000) / 3000)
        except OSError:
            pass  # run notices, too

    def registry(headers, body):  # what the registry answers: a lease or an error
        if headers["Status"] == "503":
            return  # no core is up; keep asks again
        answer = json.loads(body)
        heard.set()
        if "Skandha-Error" in headers:
            if leaving.is_set():
                sys.exit(f"{name}: {answer['message']}")
            if answer["code"] == "not_found":  # we were silent for too long: register again; each core says so
                lease.clear()
            elif not (lease or answer["retryable"]):
                sys.exit(f"{name}: {answer['message']}")
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

    def handle(handler, reply, headers, body):
        until = float(headers.get("Skandha-Deadline", "inf"))
        if time.time() * 1000 > until:
            return  # the deadline has passed
        question = None
        try:
            question = json.loads(body)
            if answers.begin(question, reply, until):
                answers.give(question, reply, handler(question))
        except Exception as e:
            answers.give(question, reply, {"code": "internal", "message": f"{name}: {e}", "retryable": False}, "internal")

    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: leaving.set())
    subjects = {f"{subject} {name}": f for subject, f in handlers.items()}  # asked as any one of the plugin's processes, or as this one
    subjects |= {f"{subject}.{me}": f for subject, f in handlers.items() if subject.startswith(("tool.", "llm."))}
    asked = {s.split()[0]: f for s, f in subjects.items()}
    while not leaving.is_set():
        try:
            bus = Bus(f"reply.{name}.*.{me}.*", *subjects)
            answers.connected(bus)
            threading.Thread(target=keep, args=(bus,), daemon=True).start()
            for subject, reply, headers, body in bus:
                if subject.startswith("reply."):
                    registry(headers, body)
                else:
                    work[:] = [w for w in work if not w.done()]
                    work.append(pool.submit(handle, asked[subject], reply, headers, body))
        except Refused as e:
            sys.exit(f"{name}: {e}")
        except OSError as e:
            print(f"{name}: {e}; trying again", file=sys.stderr)
            leaving.wait(0.2)


class Answers:
    """Remembers requests and answers, so that the same call runs once however many times it arrives, and no answer is lost with a
    connection. Calls are remembered until their deadline; answers are sent again when the connection is back."""

    def __init__(self):
        self.lock, self.bus = threading.Lock(), None
        self.known = {}  # (call, attempt): [deadline in ms, the answer's (body, error) or None while it runs, reply subjects]
        self.sent = collections.deque(maxlen=256)  # (when, reply subject, body, error)

    @staticmethod
    def key(question):
        key = (question.get("call") or question.get("plan"), question.get("attempt")) if isinstance(question, dict) else ()
        return key if key and all(isinstance(id, str) for id in key) else None

    def begin(self, question, reply, until):  # whether it is to be run
        key = self.key(question)
        if not key:
            return True
        with self.lock:
            now = time.time() * 1000
            for old in [k for k, (deadline, *_) in self.known.items() if now > deadline + 60_000][:16]:
                del self.known[old]
            new = key not in self.known
            _, answer, replies = self.known.setdefault(key, [until, None, []])
            replies.append(reply)
        if answer:
            self.send(time.time(), reply, *answer)
        return new

    def give(self, question, reply, body, error=""):
        key = self.key(question)
        with self.lock:
            entry = self.known.get(key) if key else None
            if entry:
                entry[1] = (body, error)
        for r in entry[2] if entry else [reply]:
            self.send(time.time(), r, body, error)

    def send(self, when, reply, body, error):
        self.sent.append((when, reply, body, error))
        try:
            self.bus.publish(reply, body, error=error)
        except OSError:
            pass  # connected sends it

    def connected(self, bus):
        self.bus = bus
        for _ in range(len(self.sent)):
            when, *answer = self.sent.popleft()
            if time.time() - when < 30:
                self.send(when, *answer)
