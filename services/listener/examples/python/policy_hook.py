#!/usr/bin/env python3
"""A policy in one file of plain Python: while it runs, the agent writes no file with "secret" in its name.

    eval "$(bin/skandha env --data .data no-secrets)" && python3 policy_hook.py
"""
import json, os, secrets, signal, socket, sys, time, urllib.parse

NAME, ME, lease = "no-secrets", "py-" + secrets.token_hex(8), {}  # the plugin, this run of it, what the registry says
MANIFEST = {"name": NAME, "version": "1.0.0", "hooks": [{"point": "before_act"}]}


def decide(act):  # schemas/hooks/before_act.json -> schemas/hooks/reply.json
    if act["tool"] in ("file_system:write_file", "file_system:append_file") and "secret" in act["args"]["path"]:
        return {"verb": "deny", "reason": "no-secrets: no file may have 'secret' in its name"}
    return {"verb": "continue"}


def publish(subject, body):
    data = json.dumps(body).encode()
    bus.sendall(f"PUB {subject} {len(data)}\r\n".encode() + data + b"\r\n")


def ask(verb, **body):  # the registry; its answer comes on the reply subject
    publish(f"plugin.{verb}.{NAME} reply.{NAME}.core.{ME}.1", {"instance": ME, **body})


def keep(number, _):  # the alarm renews the lease; Ctrl-C and SIGTERM drain it, and the alarm after that ends it
    if number != signal.SIGALRM or lease.get("state") == "draining":
        ask("unregister")
    elif lease:
        ask("heartbeat", hash=lease["hash"])
    else:
        ask("register", **MANIFEST)


def serve():
    global bus, lease
    url = urllib.parse.urlsplit(os.environ.get("SKANDHA_NATS") or sys.exit('SKANDHA_NATS is not set; type: eval "$(bin/skandha env --data .data no-secrets)"'))
    token = urllib.parse.unquote(url.username or "")
    try:  # run.json says where the bus is now, in case it has moved
        with open(os.path.join(os.environ["SKANDHA_DATA"], "run.json")) as f:
            url = urllib.parse.urlsplit(json.load(f)["url"])
    except (KeyError, OSError, ValueError):
        pass
    bus = socket.create_connection((url.hostname, url.port))
    hello = json.dumps({"verbose": False, "auth_token": token, "jwt": token})
    bus.sendall(f"CONNECT {hello}\r\nSUB hook.before_act.{NAME} {NAME} 1\r\nSUB reply.{NAME}.*.{ME}.* 2\r\nPING\r\n".encode())
    for number in signal.SIGALRM, signal.SIGINT, signal.SIGTERM:
        signal.signal(number, keep)
    stream = bus.makefile("rb")
    while lease.get("state") != "gone":
        verb, *args = stream.readline().decode().split() or [None]
        if verb is None:
            raise ConnectionError("the bus is gone")
        if verb == "-ERR":
            why = " ".join(args)
            if "Authorization" not in why and "Revoked" not in why and "Expired" not in why:
                raise ConnectionError(why)
            sys.exit(f"{NAME}: the bus refuses the credentials: {why}: they are missing, revoked, replaced or expired; to get new ones: skandha plugins invite {NAME}")
        if verb == "PONG":  # it has accepted them; the alarm registers until a core answers
            signal.setitimer(signal.ITIMER_REAL, 0.001, 1)
        if verb == "PING":
            bus.sendall(b"PONG\r\n")
        if verb == "MSG":  # subject, number of the subscription, reply subject if there is one, bytes
            body = stream.read(int(args[-1]) + 2)
            if args[0].startswith("hook."):
                try:
                    verdict = decide(json.loads(body)["data"])
                except Exception as e:  # whatever it is, it was not allowed
                    verdict = {"verb": "deny", "reason": f"{NAME} failed: {e!r}"}
                publish(args[2], verdict)
            else:
                answer, leaving = json.loads(body), lease.get("state") == "draining"
                if leaving and answer.get("state") == "active":  # to a heartbeat before
                    continue
                silent = answer.get("code") == "not_found" and not leaving  # it was silent for too long; each core says so
                if silent:
                    lease = {}
                    ask("register", **MANIFEST)
                if silent or answer.get("retryable"):  # no core can answer now: the alarm asks again
                    signal.setitimer(signal.ITIMER_REAL, 1, 1)
                    continue
                state = answer.get("state") or sys.exit(answer["message"])  # an error: the manifest is wrong
                if state != lease.get("state"):
                    print(NAME, "is", state, flush=True)
                lease = answer
                seconds = 0.3 if state == "draining" else lease["ttl_ms"] / 3000
                signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1))  # again each second until it is answered


try:
    serve()
except OSError as e:  # the bus is away: begin anew, unless somebody ends it meanwhile
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    print(NAME, "tries again:", e, flush=True)
    time.sleep(1)
    os.execv(sys.executable, [sys.executable, *sys.argv])
