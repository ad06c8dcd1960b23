#!/usr/bin/env python3
"""A listener: sends each line of standard input to an agent, and prints the answer.

    eval "$(bin/skandha env --data .data python)" && echo 'what is 2+2?' | python3 listener.py
"""
import json, secrets, signal, sys, time

from skandha import Bus, Refused

SESSION, WRITER = "agent.main.python", "python"  # agent.<agent>.<session>; the writer's name
INBOX = "_INBOX." + secrets.token_hex(8)


def emit(text):
    """Returns when the bus has acknowledged the text, with its sequence: from then on it is safe, and ends in
    exactly one terminal event. Until then it is sent again, under the same id, so that it counts once."""
    body = {"text": text, "id": secrets.token_hex(8), "source": "stdin"}
    while True:
        try:
            # for the acknowledgement, and the events of the session; answer.… has those that answer this listener
            bus = Bus(INBOX, SESSION + ".*.*", SESSION.replace("agent", f"answer.{WRITER}", 1) + ".*.*")
            bus.socket.settimeout(5)
            bus.publish(f"{SESSION}.sense.input.{WRITER}", body, reply=INBOX)
            for subject, _, _, answer in bus:
                if subject == INBOX and answer and "seq" in json.loads(answer):
                    bus.socket.settimeout(None)
                    return bus, json.loads(answer)["seq"]
                if subject == INBOX:
                    raise OSError(f"not stored: {answer.decode() or 'no stream exists'}")
        except Refused:
            raise
        except OSError as e:
            print(f"{e}; sending it again", file=sys.stderr)
            time.sleep(1)


def end(bus, sequence):
    """Waits for the terminal event of the input."""
    for _, _, _, message in bus:
        event = json.loads(message)
        if event["type"] in ("skandha.reflect.recorded.v1", "skandha.turn.failed.v1") and event["data"]["sequence"] == sequence:
            return event["data"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # by default the first process of a container ignores it
    try:
        for line in filter(None, map(str.strip, sys.stdin)):
            bus, sequence = emit(line)
            print(f"acknowledged: {sequence}", file=sys.stderr)
            data = end(bus, sequence)
            print(data.get("answer") or f"failed: {data.get('code')}: {data.get('reason')}", flush=True)
    except OSError as e:  # what was acknowledged is safe
        sys.exit(f"{WRITER}: {e}")
