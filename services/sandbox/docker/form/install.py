"""The first process of a sandbox that installs packages: install.py BYTES ARGS…

Runs the interpreter with ARGS, forwards each line that it prints, and ends it when
/packages exceeds three times BYTES (including incomplete files) or when the service has
died. Among its own lines, those that begin with "o" are output; the one that begins with
"r" is the last: how the interpreter ended, as JSON.
"""

import json, os, select, shutil, subprocess, sys

TOP, TMP = "/packages", "/packages/.tmp"
LONGEST = 4096  # bytes of a line
LOOK = 0.5  # seconds between checks of the size


def tell(kind, data):
    out = memoryview(kind + data + b"\n")
    while out:
        out = out[os.write(1, out):]


def end(**how):
    tell(b"r", json.dumps(how).encode())
    sys.exit(0)


def size():
    total, todo = 0, [TOP]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for e in entries:
                    try:
                        total += e.stat(follow_symlinks=False).st_blocks * 512
                        if e.is_dir(follow_symlinks=False):
                            todo.append(e.path)
                    except FileNotFoundError:
                        pass
        except FileNotFoundError:
            pass
    return total


def flush():
    """Writes everything to disk, so that an existing set survives power loss."""
    for top, _, files in os.walk(TOP):
        for name in [top] + [os.path.join(top, f) for f in files]:
            if not os.path.islink(name):
                fd = os.open(name, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)


def run(limit, args):
    try:
        os.mkdir(TMP)
    except OSError as e:
        end(error="the image's user cannot write %s: %s; use the image of deploy/docker/sandbox" % (TOP, e.strerror))
    child = subprocess.Popen(
        [sys.executable, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": TMP}, cwd=TMP, start_new_session=True)
    pipe, rest = child.stdout.fileno(), b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        ready = dict(poll.poll(LOOK * 1000))
        if 0 in ready and not os.read(0, 4096):
            sys.exit(1)  # the service has died; everything ends with the first process
        if pipe in ready:
            piece = os.read(pipe, 65536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            while len(rest) > LONGEST:
                lines.append(rest[:LONGEST])
                rest = rest[LONGEST:]
            for line in lines:
                tell(b"o", line[:LONGEST])
        elif size() > 3 * limit:
            child.kill()
            end(large=True)
    if rest:
        tell(b"o", rest)
    code = child.wait()
    shutil.rmtree(TMP)
    total = size()
    if total > limit:
        end(large=True)
    if code == 0:
        flush()
    end(code=code, bytes=total)


run(int(sys.argv[1]), sys.argv[2:])
