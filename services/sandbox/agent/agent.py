# The agent: the first process of a sandbox. One thread, one loop: it reads requests
# from standard input, forks a child for each, relays the child's frames, ends it in
# time and kills what a run has left. It follows the other parts in the same namespace.
#
# A frame is its length (4 bytes, big-endian), a kind (1 byte), an id (4 bytes),
# and a payload. To the agent: h hello, q request, d data, e end of data,
# c credit, x stop. From it: r ready, o live output, k kept output, s a run's
# result as its child sends it, d data, c credit, a answer, the last of an id.

import select

VERSION = 1
MAX_FRAME = 1 << 20      # payload
MAX_OPS = 16             # at once, including waiting runs
WINDOW = 512 << 10       # bytes of data that may be in transit without credit
MAX_SAID = 512 << 10     # bytes that a run's child may send about its result
OUT_FULL = 1 << 20       # bytes queued for the pipe at which children wait
LIVE_FULL = 256 << 10    # and at which live output is dropped
LIVE_PIECE, LIVE_EVERY = 16 << 10, 0.05
KILL_WITHIN = 10.0       # seconds that a kill may take before the sandbox is given up
MAX_FD = 1024

ME = posix.getpid()
PID1 = ME == 1
POLLIN, POLLOUT = select.POLLIN, select.POLLOUT
now = time.monotonic


class Keep:
    """The head and the tail of a stream, live pieces of its head."""

    def __init__(self, limit, live):
        self.head, self.tail, self.total = bytearray(), bytearray(), 0
        self.head_max = (limit + 1) // 2
        self.tail_max = limit - self.head_max
        self.live, self.sent, self.since = live, 0, 0.0

    def add(self, data):
        self.total += len(data)
        room = self.head_max - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self.tail += data
            if len(self.tail) > self.tail_max * 2 + 65536:
                self.trim()

    def trim(self):
        if len(self.tail) > self.tail_max:
            del self.tail[:len(self.tail) - self.tail_max]


class Op:
    """A request and the state of its child."""

    def __init__(self, id, payload):
        self.id, self.payload = id, payload
        self.request = request = parse(payload)[0]
        self.is_run = request["op"] == "run"
        self.proc, self.status, self.answered, self.ended = None, None, False, False
        self.queue, self.queued, self.input_ended = [], 0, not request.get("stream")
        self.credit, self.paused, self.said, self.before, self.buffer = WINDOW, False, None, None, b""
        self.timeout = request["timeout_ms"] / 1000
        self.grace = request.get("grace_ms", 500) / 1000
        self.started = self.deadline = self.kill_at = self.gone_by = None
        self.timed_out = self.stopped = False
        self.strays, self.sweeps, self.killed, self.duration = 0, 0, set(), 0
        self.run_status, self.scanning = None, False  # of a run whose files are being collected
        self.early = False  # answered; its child is about to end
        if self.is_run:
            self.keeps = [Keep(request["max_output"], request.get("live")) for _ in (1, 2)]


poll = select.poll()
watched = {}        # fd -> (function, argument)
ops = {}            # id -> Op
waiting = []        # waiting runs
running = None      # the run that has its turn, until it is answered
unfit = None        # why nothing can run here any more, or None
sweeping = None     # (op, when) while strays are being ended
held = []           # operations waiting for the end of a sweep
prepared = False    # whether a child can be forked
used = False        # whether a request has arrived
leaving = {}        # pid -> Proc of children that have answered and are ending
spare = None        # a child that was forked ahead and waits for its request
out, out_size = [], 0
out_watched = False
null = -1
prctl = None


# Frames out.

def send(kind, id, payload=b""):
    global out_size
    out.append(b"".join(((len(payload) + 5).to_bytes(4, "big"), kind, id.to_bytes(4, "big"), payload)))
    out_size += len(payload) + 9


def flush():
    """Writes as much as the pipe accepts."""
    global out_size, out_watched
    while out:
        data = out[0] if len(out) == 1 else b"".join(out[:64])
        try:
            n = posix.write(1, data)
        except BlockingIOError:
            n = -1
        except OSError:
            leave()
        if n > 0:
            out_size -= n
        if n == len(data):
            del out[:64]
            continue
        if n >= 0:
            out[:64] = [data[n:]]
        if not out_watched:
            watch(1, POLLOUT, lambda _, ev: flush(), None)
            out_watched = True
        return
    if out_watched:
        unwatch(1)
        out_watched = False
        resume()


def resume():
    """Resumes children whose data waited for the pipe."""
    for op in list(ops.values()):
        if op.paused and op.credit > 0:
            op.paused = False
            watch(op.proc.res, POLLIN, on_result, op)
            on_result(op, 0)


def watch(fd, events, function, argument):
    watched[fd] = (function, argument)
    poll.register(fd, events)


def unwatch(fd):
    if watched.pop(fd, None) is not None:
        poll.unregister(fd)


def close(p, name):
    fd = getattr(p, name)
    if fd >= 0:
        unwatch(fd)
        posix.close(fd)
        setattr(p, name, -1)


# Requests.

def on_control(_, events):
    """Reads the service's frames."""
    global inbox
    try:
        data = posix.read(0, 65536)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if not data:
        leave()
    inbox = inbox + data if inbox else data
    at, size = 0, len(inbox)
    while size - at >= 9:
        n = int.from_bytes(inbox[at:at + 4], "big")
        if n < 5 or n > MAX_FRAME + 5:
            leave()
        if size - at < n + 4:
            break
        handle(inbox[at + 4:at + 5], int.from_bytes(inbox[at + 5:at + 9], "big"), inbox[at + 9:at + 4 + n])
        at += n + 4
    if at:
        inbox = inbox[at:]


inbox = b""


def handle(kind, id, payload):
    op = ops.get(id)
    if kind == b"q":
        op = ops[id] = Op(id, payload)
        if len(ops) > MAX_OPS:
            fail(op, "failed", "too many operations at once in the sandbox")
        elif op.is_run:
            waiting.append(op)
            next_run()
        elif op.request["op"] == "survey" and not sweeping and not unfit and surveyed(op):
            pass
        elif sweeping or 0 in ops:
            held.append(op)
        else:
            start(op)
    elif op is None:
        return  # already answered
    elif kind == b"d":
        op.queue.append(payload)
        op.queued += len(payload)
        if op.queued > WINDOW + MAX_FRAME:
            leave()  # a protocol violation
        feed(op, 0)
    elif kind == b"e":
        op.input_ended = True
        feed(op, 0)
    elif kind == b"c":
        op.credit += int.from_bytes(payload, "big")
        if op.paused and op.credit > 0 and out_size < OUT_FULL:
            op.paused = False
            watch(op.proc.res, POLLIN, on_result, op)
            on_result(op, 0)
    elif kind == b"x":
        stop(op)


def surveyed(op):
    """Answers a survey of a small workspace at once."""
    quick = quick_survey(op.request)
    if quick is None:
        return False
    send(b"d", op.id, quick[0])
    send(b"a", op.id, quick[1])
    forget(op)
    return True


def next_run():
    global running
    while running is None and waiting and not sweeping:
        op = running = waiting.pop(0)
        start(op)


def start(op):
    """Starts a child for the operation."""
    global used
    used = True
    if unfit:
        return fail(op, "broken", unfit)
    op.started = now()
    op.deadline = op.started + op.timeout
    try:
        if prepared and limits_now() != first_limits:
            return give_up(op, "the limits of its first process were changed")
        op.proc = child_of(op)
    except OSError as e:
        why = "the sandbox cannot start a process: " + posix.strerror(e.errno)
        if e.errno in (errno.EAGAIN, errno.EMFILE) and not leaving and not any(o.proc for o in ops.values()):
            return give_up(op, why)  # and this is permanent
        return fail(op, "failed", why)
    except MemoryError:
        return fail(op, "failed", "the sandbox is out of memory")
    op.payload = b""
    p = op.proc
    watch(p.res, POLLIN, on_result, op)
    if op.is_run:
        watch(p.out, POLLIN, on_stdout, op)
        watch(p.err, POLLIN, on_stderr, op)
    if p.pidfd >= 0:
        watch(p.pidfd, POLLIN, on_exit, op)
    feed(op, 0)


def feed(op, events):
    """Forwards received data to the child, and gives the service credit for it."""
    p = op.proc
    if p is None:
        return
    taken = 0
    while op.queue:
        data = op.queue[0]
        if p.inp >= 0:
            try:
                n = posix.write(p.inp, data)
            except BlockingIOError:
                watch(p.inp, POLLOUT, feed, op)
                break
            except OSError:
                close(p, "inp")  # it no longer reads
                continue
        else:
            n = len(data)
        taken += n
        if n < len(data):
            op.queue[0] = data[n:]
        else:
            del op.queue[0]
    op.queued -= taken
    if taken and not op.input_ended:
        send(b"c", op.id, taken.to_bytes(4, "big"))
    if not op.queue and p.inp >= 0:
        unwatch(p.inp)
        if op.input_ended:
            close(p, "inp")


def stop(op):
    """Handles the service's request to stop an operation."""
    if op.ended or op.scanning or op.early:
        return
    op.stopped = True
    if op in waiting:
        waiting.remove(op)
        op.started = now()
        return finish(op)
    if op in held:
        held.remove(op)
        return fail(op, "failed", "it was stopped")
    end(op)


def end(op):
    """SIGTERM now, SIGKILL after the grace time."""
    if op.kill_at is None:
        op.kill_at = now() + op.grace
        kill_group(op, 15)


# The loop.

def tick():
    """Does what is due; returns the milliseconds until something is, or None."""
    at, t = None, now()

    def by(when):
        nonlocal at
        if at is None or when < at:
            at = when

    for op in list(ops.values()):
        if op.proc is None:
            continue
        if op.status is not None and not op.ended:
            ended(op)
            continue
        if op.ended:
            if op.is_run:
                continue  # being swept
            if not op.paused:
                complete(op)
            elif t > op.deadline:  # nothing reads its data
                op.timed_out = True
                finish(op)
            else:
                by(op.deadline)
            continue
        if op.kill_at is None:
            if t >= op.deadline:
                op.timed_out = op.timed_out or not op.scanning
                end(op)
            by(op.deadline if op.kill_at is None else op.kill_at)
        elif op.gone_by is None:
            if t >= op.kill_at:
                kill_group(op, 9)
                op.gone_by = t + KILL_WITHIN
                by(op.gone_by)
            else:
                by(op.kill_at)
        elif t >= op.gone_by:
            leave()
        else:
            by(op.gone_by)
        if op.is_run and not op.scanning and not op.early:
            for n in (0, 1):
                keep = op.keeps[n]
                if keep.since and keep.live:
                    if t - keep.since >= LIVE_EVERY:
                        send_live(op, n)
                    else:
                        by(keep.since + LIVE_EVERY)
        if op.proc.pidfd < 0:
            reap()  # nothing else would wake the loop
            by(t + min(0.005, max(0.0002, (t - op.started) / 8)))
        elif op.is_run:
            by(t + 0.2)  # orphans that ended in the meantime
            if t >= reap_at[0]:
                reap_at[0] = t + 0.2
                reap()
    if any(p.pidfd < 0 for p in leaving.values()):
        reap()
        by(t + 0.002)
    if sweeping is not None:
        sweep()
        by(t + 0.001)
    if any(o.status is not None and not o.ended for o in ops.values()):
        return 0
    return None if at is None else max(0, at - t) * 1000


reap_at = [0.0]


WARM_AFTER = 10  # ms without a request, before the first


def warm_up():
    """When idle, loads modules that code will likely need, one by one."""
    for name in ("traceback", "linecache", "json", "re", "random", "datetime", "threading", "collections", "functools", "itertools", "math", "atexit"):
        try:
            __import__(name)
        except Exception:
            pass  # a distribution that lacks it
        yield
    exec(compile_code("x = [str(1.5)]\nx"), {"__builtins__": __builtins__})
    import gc

    gc.collect()
    gc.freeze()  # so that collections in children do not touch, and copy, it
    gc.disable()


warming = warm_up()


def leave():
    """Ends the sandbox: when the first process ends, all others do."""
    if not PID1:
        for o in ops.values():
            if o.proc is not None and o.status is None:
                kill_group(o, 9)
        if spare is not None:
            kill(spare.pid, 9)
        for _ in range(100):
            reap()
            left = strays(())
            if not left:
                break
            for pid in left:
                kill(pid, 9)
            time.sleep(0.001)
    posix._exit(0)


def begin():
    global null
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # a first process ignores signals without a handler
    if not PID1:
        for name in IGNORED:
            _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    null = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    while null < 3:  # one of the three was closed
        posix.dup2(null, null, True)
        null = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    posix.closerange(null + 1, MAX_FD)
    posix.set_blocking(0, False)
    posix.set_blocking(1, False)
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", line_buffering=True)
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    watch(0, POLLIN, on_control, None)
    send(b"r", 0, dumps({"version": VERSION, "python": sys.version.split()[0], "pid": ME}))


def loop():
    global warming
    while True:
        wait = tick()
        if out and not out_watched:
            flush()
        if not ops and warming is not None:
            wait = 0 if not prepared else 1 if used else WARM_AFTER
        elif not ops and spare is None:
            wait = 1  # skip the wait for whatever follows immediately
        ready = poll.poll(wait)
        if not ready and not prepared:
            prepare()
        elif not ready and not ops and warming is not None:
            while not poll.poll(0):
                try:
                    next(warming)
                except StopIteration:
                    warming = None
                    break
        elif not ready and not ops and spare is None:
            fork_spare()
        for fd, events in ready:
            w = watched.get(fd)
            if w is not None:
                w[0](w[1], events)


def main():
    PLACE.update(loads(HELLO.decode()))  # noqa: F821, set by the bootstrap
    try:
        begin()
        loop()
    except Child as c:
        job = c.job
    job()


main()
