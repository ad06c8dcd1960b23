import json, os, platform, sys, sysconfig

room = os.statvfs("/workspace")
print(json.dumps({
    "python": platform.python_version(),
    "platform": sysconfig.get_platform() + " " + sys.implementation.cache_tag,
    "bytes": room.f_blocks * room.f_frsize,
    "files": room.f_files,
}), flush=True)
sys.stdin.buffer.read()
