# Export and import: a stream of records. A record is the length of its head, 4
# bytes big-endian, its head, JSON, and of a file its content. Length 0 ends it.

MAGIC = b"skandha workspace 1\n"


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
        head = {"p": joined(parts), "m": st.st_mode & 0o777, "t": st.st_mtime_ns}
        kind = kind_of(st)
        if kind == DIR:
            send_record(dict(head, k="d"))
        elif kind == LNK:
            try:
                send_record(dict(head, k="l", to=posix.readlink(name, dir_fd=fd)))
            except OSError:
                pass  # no longer a link
        elif kind == REG:
            try:
                f, st = open_regular(fd, name, head["p"], posix.O_RDONLY)
            except (OSError, Refused):
                continue
            size += st.st_size
            bounded(q, count, size)
            send_record(dict(head, k="f", s=st.st_size))
            send_content(f, st.st_size)
            posix.close(f)
        bounded(q, count, size)
    if walk.more:
        raise Refused("too_large", "the workspace has more than %d files, or its nesting is too deep" % MAX_SEARCH)
    send_data((0).to_bytes(4, "big"))
    answer(files=count, bytes=size)


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
    while True:
        n = int.from_bytes(stream.exact(4), "big")
        if n == 0:
            break
        if n > 16384:
            raise Refused("invalid", "the archive has a record that is too long")
        head = archive_head(root, stream.exact(n))
        count += 1
        size += head.get("s", 0)
        bounded(q, count, size)
        import_record(root, head, stream)
    answer(files=count, bytes=size)


def archive_head(root, text):
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
    if h["k"] == "l" and not link_inside(root, parts[:-1], h["to"]):
        raise Refused("outside", "the archive's link %s leads outside the workspace" % p[:200])
    return h


def link_inside(root, at, target):
    parts = root.below(target)
    if parts is None or "\0" in target or len(target) > MAX_PATH:
        return False
    depth = 0 if target.startswith("/") else len(at)
    for p in parts:
        depth += -1 if p == ".." else 1
        if depth < 0:
            return False
    return True


def import_record(root, head, stream):
    path = head["p"]
    fd, name = import_parent(root, path.split("/"))
    try:
        if head["k"] == "d":
            try:
                posix.mkdir(name, 0o755, dir_fd=fd)
            except FileExistsError:
                if kind_of(posix.stat(name, dir_fd=fd, follow_symlinks=False)) != DIR:
                    raise Refused("exists", "%s exists already and is not a directory" % path)
            posix.chmod(name, head["m"] & 0o777 | 0o700, dir_fd=fd)  # just verified to be a directory of ours
        elif head["k"] == "l":
            existing_or_link(fd, name, path)
            posix.symlink(head["to"], name, dir_fd=fd)
        else:
            existing_or_link(fd, name, path, remove=False)
            with Temp(fd, 0o600) as t:
                left = head["s"]
                while left > 0:
                    b = stream.take(min(left, CHUNK))
                    write_all(t.fd, b)
                    left -= len(b)
                posix.fchmod(t.fd, head["m"] & 0o777)
                posix.utime(t.fd, ns=(head["t"], head["t"]))
                t.become(name)
    finally:
        posix.close(fd)


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
