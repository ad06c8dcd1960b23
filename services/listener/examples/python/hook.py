#!/usr/bin/env python3
"""A policy that changes what is about to run: everything the agent writes ends with a newline.

    eval "$(bin/skandha env --data .data newline)" && python3 hook.py
"""
from skandha import serve

MANIFEST = {
    "name": "newline", "version": "1.0.0", "description": "Ends files with a newline.",
    "hooks": [{"point": "before_act", "deadline_ms": 1000, "on_error": "allow"}],
}


def before_act(call):  # schemas/hooks/envelope.json -> schemas/hooks/reply.json
    act = call["data"]
    if act["tool"] == "file_system:write_file" and not act["args"]["content"].endswith("\n"):
        return {"verb": "replace", "data": {**act, "args": {**act["args"], "content": act["args"]["content"] + "\n"}}}
    return {"verb": "continue"}


if __name__ == "__main__":
    serve(MANIFEST, {"hook.before_act.newline": before_act})
