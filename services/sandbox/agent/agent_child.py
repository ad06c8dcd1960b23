# What a forked child does: the run of Python code or of a command.
#
# The top imports only modules that are built into the interpreter: every import here
# delays every start of a sandbox.

import errno
import posix
import sys
import time

import _signal

try:
    import _json

    class _Context:  # what _json's scanner requires of a decoder
        strict, object_hook, object_pairs_hook = True, None, None
        parse_float, parse_int, parse_constant, memo = float, int, float, {}

    _scan = _json.make_scanner(_Context)

    def loads(text):
        return _scan(text, 0)[0]

    def _unknown(value):
        raise TypeError(type(value).__name__ + " is not JSON")

    def dumps(value):
        """Encodes compact JSON; raises ValueError, TypeError or RecursionError if it cannot."""
        encode = _json.make_encoder({}, _unknown, _json.encode_basestring, None, ":", ",", False, False, False)
        text = "".join(encode(value, 0))
        try:
            return text.encode()
        except UnicodeEncodeError:  # lone surrogates, e.g. of file names
            encode = _json.make_encoder({}, _unknown, _json.encode_basestring_ascii, None, ":", ",", False, False, False)
            return "".join(encode(value, 0)).encode()

except ImportError:  # an interpreter without the accelerator
    from json import loads
    from json import dumps as _dumps

    def dumps(value):
        return _dumps(value, separators=(",", ":"), allow_nan=False).encode()


MAX_RESULT = 64 << 10  # bytes of a result or of a repr
MAX_FILES = 64         # listed after a run
MAX_WALK = 32768       # entries examined to find them; their prints fit into one frame
MAX_LEVELS = 16        # of directories below out
RESULT_FD = 60         # in a child: for its answer; below the lowest limit of open files
GO_FD = 61             # in a spare child: for its request

PLACE = {"workspace": "/workspace", "tmp": "/tmp", "packages": "/packages", "limits": {}}


class Refused(Exception):
    """A refused operation, with a text for the model."""

    def __init__(self, code, message):
        self.code, self.message = code, message


def say(kind, payload):
    send_frames((kind, payload))


def send_frames(*frames):
    """Sends frames to the parent in one write: kind, length and payload of each."""
    left = memoryview(b"".join(k + len(p).to_bytes(4, "big") + p for k, p in frames))
    while left:
        left = left[posix.write(RESULT_FD, left):]


def refuse(code, message):
    say(b"a", dumps({"error": {"code": code, "message": message}}))


# Files below out.

def file_of(path, st, target=None):
    mode = st.st_mode & 0o170000
    kind = {0o100000: "file", 0o040000: "dir", 0o120000: "link"}.get(mode, "other")
    f = {"path": path, "type": kind, "size": st.st_size, "mode": st.st_mode & 0o7777, "mtime_ns": st.st_mtime_ns}
    if target is not None:
        f["target"] = target
    return f


def out_files():
    """Returns (path -> stat of the regular files below out, reason -> number not examined)."""
    found, unseen, left, dirs = {}, {}, MAX_WALK, [("out", PLACE["workspace"] + "/out")]

    def miss(why):
        unseen[why] = unseen.get(why, 0) + 1

    while dirs and left >= 0:
        shown, path = dirs.pop()
        try:
            fd = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as e:
            miss("out" if shown == "out" and e.errno in (errno.ELOOP, errno.ENOTDIR) else "closed")
            continue
        try:
            with posix.scandir(fd) as entries:
                for e in entries:
                    left -= 1
                    if left < 0:
                        miss("many")
                        break
                    if e.is_dir(follow_symlinks=False):
                        if shown.count("/") < MAX_LEVELS:
                            dirs.append((shown + "/" + e.name, path + "/" + e.name))
                        else:
                            miss("deep")
                    elif e.is_file(follow_symlinks=False):
                        found[shown + "/" + e.name] = posix.stat(e.name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            pass  # changed while it is read
        finally:
            posix.close(fd)
    return found, unseen


def print_of(path, st):
    """Returns 8 bytes that change when a file does; its ctime cannot be set back. All
    children of an interpreter hash alike."""
    return hash((path, st.st_ino, st.st_size, st.st_ctime_ns)).to_bytes(8, "big", signed=True)


def before_run():
    """Returns the fingerprints of the files below out."""
    return b"".join(print_of(p, st) for p, st in out_files()[0].items())


def changed_files(before):
    """Returns the part of the answer about the files below out."""
    now, unseen = out_files()
    known = {before[i:i + 8] for i in range(0, len(before), 8)}
    new = sorted(p for p in now if print_of(p, now[p]) not in known)
    return {"files": [file_of(p, now[p]) for p in new[:MAX_FILES]], "more": max(0, len(new) - MAX_FILES), "unseen": unseen}


# Runs.

def restore_workspace():
    """Makes the workspace usable again, whatever an earlier run did to it."""
    place = PLACE["workspace"]
    try:
        mode = posix.stat(place).st_mode
    except FileNotFoundError:
        posix.mkdir(place, 0o755)
        return
    if mode & 0o700 != 0o700:
        posix.chmod(place, mode & 0o777 | 0o700)


def make_out():
    """Creates the directory for the user's files, unless something has that name."""
    try:
        posix.mkdir(PLACE["workspace"] + "/out", 0o755)
    except OSError:
        pass  # the workspace may be full


def enter(path):
    """Changes to the run's directory."""
    if not path or path == ".":
        restore_workspace()
        posix.chdir(PLACE["workspace"])
        return
    fd = Root().open_dir(path)
    posix.fchdir(fd)
    posix.close(fd)


def feed_stdin(data):
    """Makes data standard input; it must fit into a pipe."""
    try:
        r = posix.memfd_create("stdin", 0)
        posix.write(r, data)
        posix.lseek(r, 0, 0)
    except (OSError, AttributeError):
        r, w = posix.pipe()
        posix.write(w, data)
        posix.close(w)
    posix.dup2(r, 0)
    posix.close(r)


def begin_code(before):
    """Reports that the code starts now, and what was below out."""
    say(b"b", before)


def do_run(request, tail):
    try:
        enter(request.get("dir", ""))
        make_out()
        if tail:
            feed_stdin(tail)
        before = before_run()
    except Refused as e:
        return refuse(e.code, e.message)
    except OSError as e:
        return refuse(*described(e, request.get("dir") or "the workspace"))
    if request["kind"] == "python":
        run_python(request, before)
    else:
        run_command(request, before)


def run_command(request, before):
    env = {k.decode(errors="surrogateescape"): v.decode(errors="surrogateescape") for k, v in posix.environ.items()}
    env.update(request.get("env") or {})
    argv = ["/bin/sh", "-c", request["code"]] if request["kind"] == "shell" else request["argv"]
    name = argv[0]
    places = [name]
    if "/" not in name:
        places = [d + "/" + name for d in env.get("PATH", "/usr/bin:/bin").split(":") if d]
    for s in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(s, _signal.SIG_DFL)
    begin_code(before)
    status, why = 127, "not found"
    for place in places:
        try:
            posix.execve(place, argv, env)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ENOTDIR):
                status, why = 126, posix.strerror(e.errno)
        except ValueError as e:
            status, why = 126, str(e)
    posix.write(2, (name[:200] + ": " + why + "\n").encode(errors="replace"))
    posix._exit(status)
