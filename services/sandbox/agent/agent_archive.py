# Export and import: a stream of records. A record is the length of its head, 4
# bytes big-endian, its head, JSON, and of a file its content. Length 0 ends it.

MAGIC = b"skandha workspace 1\n"
MAX_HEAD = 64 << 10
MAX_TIME = (1 << 62) - 1
TOO_MANY = "the workspace has more than %d files, or its nesting is too deep" % MAX_SEARCH
KINDS = {0o040000: "d", 0o100000: "f", 0o120000: "l"}


def op_export(q, tail):
    root = Root()
    v = posix.statvfs(root.place)
    if v.f_blocks:  # sparse files claim more than there is space for
        q["max_bytes"] = min(q["max_bytes"], v.f_blocks * v.f_frsize)
    count = size = 0
    send_data(MAGIC)
    walk = TreeWalk(posix.open(".", O_LIST, dir_fd=root.fd), [], hidden=True)
    for fd, name, parts, st in walk:
        count += 1
        head = head_of(fd, name, joined(parts), st)
        if head is None:
            continue
        if head["k"] == "f":
            try:
                f, st = open_regular(fd, name, head["p"], posix.O_RDONLY)
            except (OSError, Refused):
                continue
            size += st.st_size
            bounded(q, count, size)
            send_record(dict(head, s=st.st_size))
            send_content(f, st.st_size)
            posix.close(f)
        else:
            send_record(head)
        bounded(q, count, size)
    if walk.more:
        raise Refused("too_large", TOO_MANY)
    send_data((0).to_bytes(4, "big"))
    answer(files=count, bytes=size)


def head_of(fd, name, path, st):
    """Returns the head of what is at a path; None if it is nothing that is copied."""
    kind = KINDS.get(kind_of(st))
    if kind is None:
        return None
    head = {"p": path, "k": kind, "m": st.st_mode & 0o777, "t": min(max(st.st_mtime_ns, 0), MAX_TIME)}
    if kind == "l":
        try:
            head["to"] = posix.readlink(name, dir_fd=fd)
        except OSError:
            return None  # no longer a link
    return head


def bounded(q, count, size):
    if count > q["max_files"]:
        raise Refused("too_large", "the workspace has more than %d files" % q["max_files"])
    if size > q["max_bytes"]:
        raise Refused("too_large", "the workspace's files exceed %d bytes" % q["max_bytes"])


def send_record(head):
    text = dumps(head)
    send_data(len(text).to_bytes(4, "big") + text)


def send_content(f, size):
    """Yields exactly size bytes, even if the file changes meanwhile."""
    while size > 0:
        b = posix.read(f, min(CHUNK, size)) or bytes(min(CHUNK, size))
        send_data(b)
        size -= len(b)


class Stream:
    """Reads exact pieces of the input."""

    def __init__(self, pieces):
        self.pieces, self.left = pieces, b""

    def take(self, n):
        """Returns at most n bytes, at least one."""
        if not self.left:
            self.left = next(self.pieces, b"")
            if not self.left:
                raise Refused("invalid", "the archive ends too early")
        b, self.left = self.left[:n], self.left[n:]
        return b

    def exact(self, n):
        b = b""
        while len(b) < n:
            b += self.take(n - len(b))
        return b


def op_import(q, tail):
    root, stream = Root(), Stream(incoming(tail))
    if stream.exact(len(MAGIC)) != MAGIC:
        raise Refused("invalid", "not an archive of a workspace")
    count = size = 0
    dirs = []
    while True:
        n = int.from_bytes(stream.exact(4), "big")
        if n == 0:
            break
        if n > MAX_HEAD:
            raise Refused("invalid", "the archive has a record that is too long")
        head = archive_head(stream.exact(n))
        count += 1
        size += head.get("s", 0)
        bounded(q, count, size)
        import_record(root, head, stream)
        if head["k"] == "d":
            dirs.append(head)
    for head in reversed(dirs):  # what was made in them has changed their times
        fd, name = import_parent(root, head["p"].split("/"))
        finish_dir(fd, name, head)
        posix.close(fd)
    answer(files=count, bytes=size)


def archive_head(text):
    try:
        h = loads(text.decode())
        ok = (isinstance(h, dict) and isinstance(h["p"], str) and h["k"] in ("d", "f", "l") and isinstance(h["m"], int)
              and isinstance(h["t"], int) and 0 <= h["t"] < 1 << 62
              and (h["k"] != "f" or isinstance(h["s"], int) and h["s"] >= 0) and (h["k"] != "l" or isinstance(h["to"], str)))
    except (ValueError, KeyError, StopIteration, RecursionError):
        ok = False
    if not ok:
        raise Refused("invalid", "the archive has an invalid record")
    p = h["p"]
    parts = p.split("/")
    if p.startswith("/") or ".." in parts or "" in parts or "." in parts or "\0" in p or len(p) > MAX_PATH or len(parts) > MAX_DEPTH:
        raise Refused("outside", "the archive has an invalid path: %s" % p[:200])
    return h


def import_record(root, head, stream):
    """Makes what a record says. A link may lead anywhere, as code may make it too: nothing here follows one."""
    path = head["p"]
    fd, name = import_parent(root, path.split("/"))
    try:
        if head["k"] == "d":
            try:
                posix.mkdir(name, 0o755, dir_fd=fd)
            except FileExistsError:
                if kind_of(posix.stat(name, dir_fd=fd, follow_symlinks=False)) != DIR:
                    raise Refused("exists", "%s exists already and is not a directory" % path)
        elif head["k"] == "l":
            existing_or_link(fd, name, path)
            posix.symlink(head["to"], name, dir_fd=fd)
            posix.utime(name, ns=(head["t"], head["t"]), dir_fd=fd, follow_symlinks=False)
        else:
            existing_or_link(fd, name, path, remove=False)
            with Temp(fd, 0o600) as t:
                left = head["s"]
                while left > 0:
                    b = stream.take(min(left, CHUNK))
                    if b.count(0) == len(b):  # a hole takes no space
                        posix.lseek(t.fd, len(b), 1)
                    else:
                        write_all(t.fd, b)
                    left -= len(b)
                posix.ftruncate(t.fd, head["s"])
                posix.fchmod(t.fd, head["m"] & 0o777)
                posix.utime(t.fd, ns=(head["t"], head["t"]))
                t.become(name)
    finally:
        posix.close(fd)


def finish_dir(fd, name, head):
    """Sets mode and time of a directory, which stays usable by its owner."""
    d = posix.open(name, O_LIST, dir_fd=fd)
    posix.fchmod(d, head["m"] & 0o777 | 0o700)
    posix.utime(d, ns=(head["t"], head["t"]))
    posix.close(d)


def import_parent(root, parts):
    """Returns (fd, name) without following links: an archive names directories only."""
    fd = posix.open(".", O_WALK, dir_fd=root.fd)
    for p in parts[:-1]:
        try:
            posix.mkdir(p, 0o755, dir_fd=fd)
        except FileExistsError:
            pass
        try:
            sub = posix.open(p, O_WALK, dir_fd=fd)
        except OSError as e:
            if e.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused("outside", "the archive's %s goes through something that is not a directory" % joined(parts)[:200])
            raise
        finally:
            posix.close(fd)
        fd = sub
    return fd, parts[-1]


def existing_or_link(fd, name, path, remove=True):
    """Removes the existing file or link at a path; anything else is refused."""
    try:
        st = posix.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if kind_of(st) == DIR:
        raise Refused("is_a_directory", "%s is already a directory" % path)
    if remove:
        posix.unlink(name, dir_fd=fd)


# Copies of the workspace: the service looks for what has changed, and reads only that.

def op_survey(q, tail):
    """Lists everything that is copied, with what changes when a file does: its ctime cannot be set back."""
    root, body, count, size = Root(), Body(), 0, 0
    began = time.time_ns()
    walk = TreeWalk(posix.open(".", O_LIST, dir_fd=root.fd), [], hidden=True)
    for fd, name, parts, st in walk:
        head = survey_head(fd, name, parts, st)
        if head is None:
            continue
        count += 1
        size += len(head["p"]) + len(head.get("to", ""))
        if count > q["max_files"] or size > q["max_names"]:
            raise Refused("too_large", TOO_MANY if size > q["max_names"] else "the workspace has more than %d files" % q["max_files"])
        body.add(head)
    if walk.more:
        raise Refused("too_large", TOO_MANY)
    body.end(now=began, closed=walk.closed)


QUICK = 256             # elements that the agent itself looks at,
QUICK_BYTES = 32 << 10  # and bytes of its answer


def quick_survey(q):
    """Returns the list and the answer of op_survey for a small workspace; None: a child must do it. The agent does
    this itself, without waiting for the end of the process that has just answered: code that changes files after
    its answer changes them for the next survey. It opens directories only, which blocks on no file."""
    if q["max_files"] < QUICK:
        return None
    began, fds, found, size = time.time_ns(), [], [], 0
    try:
        root = Root()
        fds.append(root.fd)
        fds.append(posix.open(".", O_LIST, dir_fd=root.fd))
        walk = TreeWalk(fds[1], [], hidden=True)
        walk.left = QUICK
        for fd, name, parts, st in walk:
            head = survey_head(fd, name, parts, st)
            if head is not None:
                found.append(dumps(head))
                size += len(found[-1]) + 1
                if size > QUICK_BYTES:
                    walk.more = True
            if walk.more:
                return None
        return None if walk.more else (b"[" + b",".join(found) + b"]", dumps({"now": began, "closed": walk.closed}))
    except Exception:
        return None
    finally:
        for fd in fds:
            posix.close(fd)


def survey_head(fd, name, parts, st):
    head = head_of(fd, name, joined(parts), st)
    if head is not None:
        head["c"], head["i"] = st.st_ctime_ns, st.st_ino
        if head["k"] == "f":
            head["s"] = st.st_size
    return head


def op_gather(q, tail):
    """Sends the files whose paths it is given, each as the length of its path and that path, JSON. After a file
    comes a record that says whether it was the same all the time."""
    root, stream, size = Root(), Stream(incoming(tail)), 0
    while True:
        n = int.from_bytes(stream.exact(4), "big")
        if n == 0:
            break
        if n > MAX_HEAD:
            raise Refused("invalid", "a path is too long")
        path = loads(stream.exact(n).decode())
        fd, name = parent_of(root, root.parts(path))
        f, st = open_anyway(fd, name, path)
        posix.close(fd)
        size += st.st_size
        bounded(q, 0, size)
        head = head_of(-1, name, path, st)
        send_record(dict(head, s=st.st_size, c=st.st_ctime_ns, i=st.st_ino))
        send_content(f, st.st_size)
        again = posix.fstat(f)
        posix.close(f)
        same = (again.st_size, again.st_mtime_ns, again.st_ctime_ns) == (st.st_size, st.st_mtime_ns, st.st_ctime_ns)
        send_record({"p": path, "k": "same" if same else "changed"})
    send_data((0).to_bytes(4, "big"))
    answer()


def open_anyway(fd, name, path):
    """Opens a regular file even if its owner may not read it."""
    try:
        return open_regular(fd, name, path, posix.O_RDONLY)
    except PermissionError:
        mode = posix.stat(name, dir_fd=fd, follow_symlinks=False).st_mode & 0o777
        posix.chmod(name, mode | 0o400, dir_fd=fd)
        f, _ = open_regular(fd, name, path, posix.O_RDONLY)
        posix.fchmod(f, mode)
        return f, posix.fstat(f)


def parent_of(root, parts):
    """Returns (fd, name) of a path, without following links."""
    if not parts:
        raise Refused("is_a_directory", "the workspace is a directory")
    fd = posix.open(".", O_WALK, dir_fd=root.fd)
    for p in parts[:-1]:
        try:
            sub = posix.open(p, O_WALK, dir_fd=fd)
        finally:
            posix.close(fd)
        fd = sub
    return fd, parts[-1]
