#!/usr/bin/env python3
"""A tool: the model can ask how full the disk is. Start it twice, and both share the work.

    eval "$(bin/skandha env --data .data disk)" && python3 tool.py
"""
import shutil

from skandha import serve

MANIFEST = {
    "name": "disk", "version": "1.0.0", "description": "Looks after the disk.",
    "tools": [{
        "name": "disk:free", "description": "How many gigabytes are free on the disk that holds a path.",
        "args": {"type": "object", "properties": {"path": {"type": "string", "default": "/"}}, "additionalProperties": False},
        "idempotent": True, "risk": "low", "timeout_ms": 5000, "scenario_tags": ["information_retrieval"],
    }],
}


def free(call):  # schemas/tool/call.json -> schemas/tool/result.json
    path = call["args"].get("path", "/")
    try:
        usage = shutil.disk_usage(path)
    except OSError as e:
        return {"success": False, "error": {"code": "tool_failed", "message": f"{path}: {e.strerror}"}}
    return {"success": True, "data": {"path": path, "free_gb": round(usage.free / 1e9, 1), "total_gb": round(usage.total / 1e9, 1)}}


if __name__ == "__main__":
    serve(MANIFEST, {"tool.disk.disk--free": free})  # ':' is '--' in a subject
