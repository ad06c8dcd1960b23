import json, os, platform, sys, sysconfig


def number(path):
    try:
        with open(path) as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0


room = os.statvfs("/workspace")
print(json.dumps({
    "python": platform.python_version(),
    "platform": sysconfig.get_platform() + " " + sys.implementation.cache_tag,
    "bytes": room.f_blocks * room.f_frsize,
    "files": room.f_files,
    "sockets": number("/sys/fs/cgroup/memory/memory.kmem.tcp.limit_in_bytes"),
}), flush=True)
sys.stdin.buffer.read()
