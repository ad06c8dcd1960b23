# The frames of children, and the end of an operation: its leftovers are swept, then
# it is answered. The state is in agent.py.

def on_stdout(op, events):
    return on_output(op, 0)


def on_stderr(op, events):
    return on_output(op, 1)


def on_output(op, n):
    """Reads a piece of output; False if there is none now."""
    p = op.proc
    fd = p.err if n else p.out
    if fd < 0:
        return False
    try:
        data = posix.read(fd, 65536)
    except BlockingIOError:
        return False
    except OSError:
        data = b""
    if not data:
        close(p, "err" if n else "out")
        return False
    keep = op.keeps[n]
    keep.add(data)
    if keep.live:
        if not keep.since:
            keep.since = now()
        if len(keep.head) - keep.sent >= LIVE_PIECE:
            send_live(op, n)
    return True


def send_live(op, n):
    """Sends live output up to the end of the head: a prefix of the kept output, so the
    service adds what is missing from the answer."""
    keep = op.keeps[n]
    keep.since = 0.0
    if out_size > LIVE_FULL:
        keep.live = False
        return
    piece = bytes(keep.head[keep.sent:])
    keep.sent += len(piece)
    for i in range(0, len(piece), LIVE_PIECE):
        send(b"o", op.id, bytes((n,)) + piece[i:i + LIVE_PIECE])
    if len(keep.head) >= keep.head_max:
        keep.live = False


def on_result(op, events):
    """Reads the child's frames; False if there are no more now."""
    p = op.proc
    if p.res < 0 or op.paused or hear(op):
        return False
    try:
        data = posix.read(p.res, 65536)
    except BlockingIOError:
        return False
    except OSError:
        data = b""
    if not data:
        close(p, "res")
        return False
    op.buffer = op.buffer + data if op.buffer else data
    return not hear(op) and p.res >= 0


def hear(op):
    """Handles what was read, as far as there is credit; True if that is all for now."""
    while len(op.buffer) >= 5 and not op.paused:
        n = int.from_bytes(op.buffer[1:5], "big")
        if n > MAX_SAID:  # our children never send that much: the code wrote there
            op.buffer = b""
            close(op.proc, "res")
            return True
        if len(op.buffer) < n + 5:
            break
        kind, payload, op.buffer = op.buffer[:1], op.buffer[5:n + 5], op.buffer[n + 5:]
        heard(op, kind, payload)
    if op.answered and not op.is_run and not op.ended and op.status is None and not op.paused:
        dismiss(op)
        return True
    return op.paused


def heard(op, kind, payload):
    if kind == b"d" and not op.is_run:
        send(b"d", op.id, payload)
        op.credit -= len(payload)
        if op.credit <= 0 or out_size > OUT_FULL:
            op.paused = True
            unwatch(op.proc.res)
    elif kind == b"a" and op.said is None and op.before is None:  # of a run, only before the code has begun
        op.said, op.answered = payload, True
    elif kind == b"s" and op.said is None:
        op.said = payload
    elif kind == b"e" and op.is_run and len(payload) == 1 and not op.ended:
        answer_early(op, payload[0])
    elif kind == b"b" and op.before is None:
        op.before = payload


def dismiss(op):
    """Ends a file operation with its answer, without waiting for its child to end."""
    p, op.proc = op.proc, None
    kill(p.pid, 9)
    for name in ("out", "err", "res", "inp"):
        close(p, name)
    leaving[p.pid] = p
    finish(op)


def on_exit(op, events):
    reap()


def ended(op):
    """Handles the end of an operation's child: sweeps after a run, then answers."""
    global sweeping
    op.ended = True
    if op.scanning:
        drain_result(op)
        return finish(op)
    op.duration = int((now() - op.started) * 1e6)
    if not op.is_run:
        return complete(op)
    sweeping = op
    op.gone_by = now() + KILL_WITHIN
    sweep()


def sweep():
    """Ends what a run has left; it is called again until nothing is left."""
    global sweeping
    op = sweeping
    if not swept(op):
        if now() > op.gone_by:
            leave()  # what cannot be killed ends with the sandbox
        return
    sweeping = None
    complete(op)
    while held and not sweeping:
        start(held.pop(0))


def answer_early(op, code):
    """Answers when the child reports that it is done and has left nothing, without waiting
    for the kernel to tear it down. If the child lies, it is swept away like any other,
    before anything else is done."""
    if op.kill_at is not None or children() != own_pids():
        return
    op.duration = int((now() - op.started) * 1e6)
    take_output(op)
    op.run_status = code << 8
    finish_run(op)
    flush()
    kill(op.proc.pid, 9)
    del ops[op.id]
    op.id, op.early, op.kill_at, op.gone_by = 0, True, now(), now() + KILL_WITHIN
    ops[0] = op  # no request has this id


def swept(op):
    own = own_pids()
    if reap() or children() == own:
        return True  # this process inherits orphans
    found = strays(own)
    op.sweeps += 1
    op.strays = max(op.strays, sum(1 for alive in found.values() if alive))
    fresh = [pid for pid in found if pid not in op.killed]
    if PID1 and fresh and (op.sweeps > 3 or not own):
        kill(-1, 9)  # all at once: nothing can fork faster than this
    else:
        for pid in fresh:
            kill(pid, 9)
    op.killed.update(fresh)
    return not found


def complete(op):
    """Reads what is still in the pipes, collects files, answers."""
    if op.early:
        return forget(op)
    if op.is_run:
        take_output(op)
    drain_result(op)
    if op.paused:
        return  # more data than the service has read so far: continues with its credit
    if op.is_run and op.before is None and not (op.answered or op.timed_out or op.stopped):
        return give_up(op, "its process ended before the code began")
    if op.is_run and op.said is None and has_out():
        return scan_after(op)
    finish(op)


def take_output(op):
    for n in (0, 1):
        left = 64  # bounds the output of a stray that is out of reach
        while left and on_output(op, n):
            left -= 1


def drain_result(op):
    while on_result(op, 0):
        pass


def has_out():
    """Reports whether out holds something, or is not a directory."""
    try:
        fd = posix.open(PLACE["workspace"] + "/out", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError as e:
        return e.errno != errno.ENOENT
    try:
        with posix.scandir(fd) as entries:
            return any(True for _ in entries)
    except OSError:
        return True
    finally:
        posix.close(fd)


def scan_after(op):
    """Collects a command's files in a child, as part of its run."""
    before = op.before or b""
    drop(op.proc)
    op.run_status, op.scanning = op.status, True
    op.ended, op.status, op.deadline, op.kill_at, op.gone_by, op.grace, op.buffer = False, None, now() + 2, None, None, 0.0, b""
    try:
        op.proc = fork(lambda: do({"op": "scan"}, before))
    except (OSError, MemoryError):
        return finish(op)  # without a list
    watch(op.proc.res, POLLIN, on_result, op)
    if op.proc.pidfd >= 0:
        watch(op.proc.pidfd, POLLIN, on_exit, op)


def finish(op):
    """Sends the last frames of an operation."""
    global running
    if op.is_run:
        if op.answered:  # a refusal: nothing ran
            send(b"a", op.id, op.said)
        else:
            finish_run(op)
    elif op.answered and not op.timed_out and not op.stopped:
        send(b"a", op.id, op.said)
    else:
        why = "it was stopped" if op.stopped else "it took longer than %g s" % op.timeout if op.timed_out else "its process was ended"
        send(b"a", op.id, dumps({"error": {"code": "failed", "message": "the operation was not completed: " + why}}))
    forget(op)


def finish_run(op):
    sizes = []
    for n, keep in enumerate(op.keeps):
        keep.trim()
        for part in (keep.head, keep.tail):
            for i in range(0, len(part), 256 << 10):
                send(b"k", op.id, bytes((n,)) + bytes(part[i:i + (256 << 10)]))
        sizes.append([keep.total, len(keep.head), len(keep.tail)])
    if op.said is not None:
        send(b"s", op.id, op.said)
    status = op.status if op.run_status is None else op.run_status
    code, sig = 0, 0
    if status is None:
        code = -1  # it did not run
    elif status & 0x7F:
        sig = status & 0x7F
        code = 128 + sig
    else:
        code = status >> 8 & 0xFF
    send(b"a", op.id, dumps({
        "exit": {"code": code, "signal": sig, "timed_out": op.timed_out, "stopped": op.stopped and not op.timed_out,
                 "duration_us": op.duration, "strays": op.strays, "out": sizes[0], "err": sizes[1]}}))


def fail(op, code, message):
    op.ended = True
    send(b"a", op.id, dumps({"error": {"code": code, "message": message}}))
    forget(op)


def give_up(op, why):
    """Refuses this and all later requests since nothing can run here any more; the code
    makes the service destroy the sandbox."""
    global unfit
    unfit = why
    fail(op, "broken", why)


def forget(op):
    global running
    ops.pop(op.id, None)
    if op.proc is not None:
        drop(op.proc)
    if running is op:
        running = None
        next_run()
