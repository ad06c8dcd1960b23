# Processes: forking children, one ahead, collecting them, finding strays.
# The state is in agent.py.

class Child(BaseException):
    """Unwinds a forked child's stack up to main."""

    def __init__(self, job):
        self.job = job


class Proc:
    """A forked child: its pid and our ends of its pipes."""

    __slots__ = ("pid", "pidfd", "out", "err", "res", "inp", "go")


def load_prctl():
    """Finds prctl; without it (no _ctypes) sandboxes work, with weaker isolation."""
    global prctl
    try:
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
        prctl = lambda *a: _ctypes.call_function(address, a)  # noqa: E731
    except (ImportError, OSError, AttributeError):
        prctl = lambda *a: -1  # noqa: E731
    prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no other process of the sandbox may look into this one
    if not PID1:
        prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: strays become ours, and are found


def prepare():
    """Prepares the process for the first fork."""
    global prepared
    if not prepared:
        prepared = True
        load_prctl()
        start_site()
        load_limits()
        show_fonts()


def show_fonts():
    """Lets matplotlib find the font lists that the sandbox contains."""
    place, lists = posix.environ.get(b"MPLCONFIGDIR"), b"/etc/matplotlib-cache"
    try:
        names = posix.listdir(lists) if place else ()
        if names:
            posix.mkdir(place, 0o700)
        for name in names:
            posix.symlink(lists + b"/" + name, place + b"/" + name)
    except OSError:
        pass  # then it builds its own


def load_limits():
    """Remembers the limits of this process. Only code that has found a way to do so changes
    them, and then no child is reliable any more."""
    global limits_now, first_limits
    import resource

    numbers = []
    for n in sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}):
        try:
            resource.getrlimit(n)
            numbers.append(n)
        except (ValueError, OSError):
            pass  # a limit that this kernel does not know
    limits_now = lambda: [resource.getrlimit(n) for n in numbers]  # noqa: E731
    first_limits = limits_now()


def pipe():
    return posix.pipe2(posix.O_CLOEXEC)


def fork(job, inp=False, go=False):
    """Forks a child that does job with its pipes in place."""
    prepare()
    fds = []
    try:
        for _ in range(3 + inp + go):
            fds += pipe()
        pid = posix.fork()
    except OSError:
        for fd in fds:
            posix.close(fd)
        raise
    if pid == 0:
        try:
            settle(fds[1], fds[3], fds[5], fds[6] if inp else null, fds[6] if go else -1)
        except BaseException:
            posix._exit(1)  # it must not continue as a second agent; the missing start frame reports the failure
        raise Child(job)
    p = Proc()
    p.pid, p.out, p.err, p.res, p.inp, p.go = pid, fds[0], fds[2], fds[4], -1, -1
    if inp:
        p.inp = fds[7]
        posix.set_blocking(p.inp, False)
    if go:
        p.go = fds[7]
        posix.set_blocking(p.go, False)
    for fd in (p.out, p.err, p.res):
        posix.set_blocking(fd, False)
    for fd in fds[1:6:2] + fds[6:7]:
        posix.close(fd)
    try:
        p.pidfd = posix.pidfd_open(pid) if PLACE.get("pidfd", True) else -1
    except (OSError, AttributeError):
        p.pidfd = -1  # an old kernel, or Python 3.8: its end is polled
    return p


def child_of(op):
    """A child for the operation: the spare one if it fits, else a new one."""
    global spare
    stream, payload = bool(op.request.get("stream")), op.payload
    if spare is not None and not stream and len(payload) < 60 << 10:  # it fits into the pipe
        p, spare = spare, None
        if handed(p, payload):
            return p
    if spare is not None and op.is_run:
        end_spare()  # the code could stop it, and the next call would use it
    return fork(lambda: do(*parse(payload)), inp=stream)


def handed(p, payload):
    """Reports whether the spare child received its request; it may have been killed."""
    data = len(payload).to_bytes(4, "big") + payload
    try:
        whole = posix.write(p.go, data) == len(data)
    except OSError:
        whole = False
    if whole:
        close(p, "go")
    else:
        drop(p)
        kill(p.pid, 9)
    return whole


def end_spare():
    global spare
    p, spare = spare, None
    kill(p.pid, 9)
    for name in ("out", "err", "res", "go"):
        close(p, name)
    if p.pidfd >= 0:
        watch(p.pidfd, POLLIN, on_exit, None)
    leaving[p.pid] = p


# Signals to ignore where the kernel does not do so, as it does for a first process.
IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGXCPU",
           "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR")


def settle(o, e, r, i, g):
    """Puts a child's pipes in place, closes all else, resets the signals."""
    posix.setsid()
    if not PID1:
        for name in IGNORED:
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    r, g = aside(r), aside(g)
    posix.dup2(i, 0)
    posix.dup2(o, 1)
    posix.dup2(e, 2)
    posix.dup2(r, RESULT_FD, False)
    if g >= 0:
        posix.dup2(g, GO_FD, False)
    posix.closerange(3, RESULT_FD)
    posix.closerange(GO_FD + (g >= 0), MAX_FD)
    offer()
    limit()


def aside(fd):
    """Returns a duplicate of the descriptor with a high number."""
    while fd in (RESULT_FD, GO_FD):
        fd = posix.dup(fd)
    return fd


def offer():
    """Makes the kernel end this process, not the agent, when memory runs out."""
    prctl(4, 1, 0, 0, 0)  # otherwise the file does not belong to it
    try:
        fd = posix.open("/proc/self/oom_score_adj", posix.O_WRONLY | posix.O_CLOEXEC)
        try:
            posix.write(fd, b"1000")
        finally:
            posix.close(fd)
    except OSError:
        pass
    prctl(4, 0, 0, 0, 0)


def limit():
    limits = PLACE["limits"]
    if limits:
        import resource

        for name, value in limits.items():
            which = getattr(resource, "RLIMIT_" + name.upper(), None)
            if which is not None:
                hard = resource.getrlimit(which)[1]
                if hard != resource.RLIM_INFINITY:
                    value = min(value, hard)
                resource.setrlimit(which, (value, value))


def do(request, tail):
    """Runs a child. A failure here is not the code's, and is not printed as if it were: the
    parent notices the missing frames."""
    try:
        if request["op"] != "run":
            do_file(request, tail)
            posix._exit(0)
        prctl(4, 1, 0, 0, 0)
        do_run(request, tail)
    except BaseException:
        pass
    posix._exit(1)


def wait_to_go():
    """A spare child: touches what a run will touch, so that its pages are its
    own by then, and waits for the request."""
    sys.stdout.write("")
    try:
        exec(compile_code("x = [str(1.5)]\nx"), {"__builtins__": __builtins__})
        sys.path[:] = python_path()
    except Exception:
        pass
    loads('{"a":["b",1]}')
    dumps({"a": ["b", 1]})
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        b = posix.read(GO_FD, 65536)
        if not b:
            posix._exit(0)
        data += b
    posix.close(GO_FD)
    do(*parse(data[4:]))


def parse(payload):
    n = int.from_bytes(payload[:4], "big")
    return loads(payload[4:4 + n].decode()), payload[4 + n:]


def fork_spare():
    global spare
    try:
        spare = fork(wait_to_go, go=True)
    except OSError:
        pass  # no spare process: the next call forks its own


def drop(p):
    for name in ("out", "err", "res", "inp", "go", "pidfd"):
        close(p, name)


def kill(pid, sig):
    try:
        posix.kill(pid, sig)
        return True
    except OSError:
        return False


def kill_group(op, sig):
    if op.status is None:
        kill(-op.proc.pid, sig) or kill(op.proc.pid, sig)


def reap():
    """Collects all that has ended, our own children and orphans. True: there is
    no process but this one."""
    global spare
    while True:
        try:
            pid, status = posix.waitpid(-1, posix.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        if pid in leaving:
            drop(leaving.pop(pid))
        if spare is not None and spare.pid == pid:
            drop(spare)
            spare = None
        for op in list(ops.values()):
            if op.proc is not None and op.proc.pid == pid and op.status is None:
                op.status = status
                close(op.proc, "pidfd")


def own_pids():
    own = {o.proc.pid for o in ops.values() if o.proc is not None and o.status is None}
    if spare is not None:
        own.add(spare.pid)
    own.update(leaving)
    return own


def children():
    """Returns our children, or None where the kernel does not report them."""
    try:
        fd = posix.open("/proc/self/task/%d/children" % ME, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            return {int(p) for p in posix.read(fd, 4096).split()}
        finally:
            posix.close(fd)
    except (OSError, ValueError):
        return None


def strays(own):
    """Returns pid -> whether it is more than a zombie, of unexpected processes."""
    parents, alive = {}, {}
    me = ME
    try:
        names = posix.listdir("/proc")
    except OSError:
        return {}
    for name in names:
        if not name.isdigit() or int(name) == me or int(name) in own:
            continue
        try:
            fd = posix.open("/proc/" + name + "/stat", posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            continue
        try:
            fields = posix.read(fd, 1024).rpartition(b") ")[2].split()
            parents[int(name)], alive[int(name)] = int(fields[1]), fields[0] not in (b"Z", b"X")
        except (OSError, IndexError, ValueError):
            pass
        finally:
            posix.close(fd)
    if PID1:
        return alive
    mine = {me}
    while True:  # only our descendants: there are others in this namespace
        more = {p for p, parent in parents.items() if parent in mine} - mine
        if not more:
            mine.discard(me)
            return {p: alive[p] for p in mine}
        mine |= more
