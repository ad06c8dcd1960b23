import json, os, platform, sys, sysconfig


def number(path):
    try:
        with open(path) as f:
            return int(f.read())
    except (OSError, ValueError):
        return 0


fs = os.statvfs("/workspace")
print(json.dumps({
    "python": platform.python_version(),
    "platform": sysconfig.get_platform() + " " + sys.implementation.cache_tag,
    "bytes": fs.f_blocks * fs.f_frsize,
    "files": fs.f_files,
    "sockets": number("/sys/fs/cgroup/memory/memory.kmem.tcp.limit_in_bytes"),
}), flush=True)
sys.stdin.buffer.read()
