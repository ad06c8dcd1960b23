# File operations, each in a forked child. A path is walked one component at a time,
# starting at the workspace's directory, and the kernel never follows a link: links are
# read and resolved here, so concurrent changes cannot lead outside.

MAX_PATH = 4096
MAX_DEPTH = 128
MAX_LINKS = 40
CHUNK = 64 << 10

O_WALK = posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
O_LIST = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
O_FILE = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY

_CODES = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.EEXIST: ("exists", "already exists"),
    errno.ENOTDIR: ("not_a_directory", "is not a directory"),
    errno.EISDIR: ("is_a_directory", "is a directory"),
    errno.ENOTEMPTY: ("not_empty", "is a directory that is not empty"),
    errno.ENOSPC: ("no_space", "cannot be written: the workspace is full"),
    errno.EDQUOT: ("no_space", "cannot be written: the workspace is full"),
    errno.EFBIG: ("too_large", "would be too large"),
    errno.EACCES: ("denied", "may not be accessed (permission denied)"),
    errno.EPERM: ("denied", "may not be changed (operation not permitted)"),
    errno.EROFS: ("denied", "is on a file system that is read-only"),
    errno.ENAMETOOLONG: ("invalid", "has a name that is too long"),
    errno.EINVAL: ("invalid", "cannot be used like that"),
    errno.ELOOP: ("invalid", "is reached through too many links"),
}


def described(e, path):
    """Returns the code and message for an OSError about path."""
    if e.errno in _CODES:
        code, text = _CODES[e.errno]
        return code, "%s %s" % (path, text)
    return "failed", "%s: %s" % (path, e.strerror or e)


def kind_of(st):
    return st.st_mode & 0o170000


DIR, REG, LNK = 0o040000, 0o100000, 0o120000


class Root:
    """The workspace, as the root of all paths."""

    def __init__(self):
        self.place = PLACE["workspace"]
        restore_workspace()
        self.fd = posix.open(self.place, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)

    def parts(self, path):
        """Returns the components of a requested path."""
        if "\0" in path:
            raise Refused("invalid", "a path must not contain NUL")
        if len(path) > MAX_PATH:
            raise Refused("invalid", "the path is longer than %d characters" % MAX_PATH)
        parts = self.below(path)
        if parts is None:
            raise Refused("outside", "%s is outside the workspace: give a path relative to %s" % (path, self.place))
        if ".." in parts:
            raise Refused("outside", "%s: '..' is not allowed in a path" % path)
        if len(parts) > MAX_DEPTH:
            raise Refused("invalid", "%s has more than %d components" % (path, MAX_DEPTH))
        return parts

    def below(self, path):
        """Returns its components below the workspace, or None if it does not begin there."""
        if path.startswith("/"):
            if path != self.place and not path.startswith(self.place + "/"):
                return None
            path = path[len(self.place):]
        return [p for p in path.split("/") if p not in ("", ".")]

    def walk(self, path, last=True, make=False):
        """(fd of the directory, name) of a path; name is "" for the workspace.

        Links on the way are followed, and that at the end if last. make makes
        the directories that are missing on the way.
        """
        todo = self.parts(path)[::-1]
        dirs, links = [self.fd], 0
        while todo:
            name = todo.pop()
            if name == "..":  # of a link's target
                if len(dirs) == 1:
                    raise Refused("outside", "%s leads outside the workspace" % path)
                posix.close(dirs.pop())
                continue
            if not todo and not last:
                return dirs[-1], name
            try:
                st = posix.stat(name, dir_fd=dirs[-1], follow_symlinks=False)
            except FileNotFoundError:
                if not todo:
                    return dirs[-1], name
                if not make:
                    raise
                st = None
            if st is not None and kind_of(st) == LNK:
                links += 1
                if links > MAX_LINKS:
                    raise Refused("invalid", "%s is reached through too many links" % path)
                target = posix.readlink(name, dir_fd=dirs[-1])
                parts = self.below(target)
                if parts is None:
                    raise Refused("outside", "%s leads outside the workspace (a link to %s)" % (path, target[:200]))
                if target.startswith("/"):
                    for fd in dirs[1:]:
                        posix.close(fd)
                    dirs = [self.fd]
                if len(todo) + len(parts) > MAX_DEPTH * 2:
                    raise Refused("invalid", "%s is reached through links that are too long" % path)
                todo += parts[::-1]
                continue
            if not todo:
                return dirs[-1], name
            if st is None:
                try:
                    posix.mkdir(name, 0o755, dir_fd=dirs[-1])
                except FileExistsError:
                    pass
            dirs.append(posix.open(name, O_WALK, dir_fd=dirs[-1]))
            if len(dirs) > MAX_DEPTH * 2:
                raise Refused("invalid", "%s is too deep" % path)
        return dirs[-1], ""

    def open_dir(self, path, flags=O_WALK):
        fd, name = self.walk(path)
        return posix.open(name or ".", flags, dir_fd=fd)

    def open_file(self, path, flags):
        """Opens a regular file, and nothing else; returns (fd, stat)."""
        fd, name = self.walk(path)
        if not name:
            raise Refused("is_a_directory", "%s is a directory" % (path or "the workspace"))
        return open_regular(fd, name, path, flags)


def open_regular(fd, name, path, flags):
    regular(posix.stat(name, dir_fd=fd, follow_symlinks=False), path)
    f = posix.open(name, flags | O_FILE, dir_fd=fd)
    st = posix.fstat(f)
    try:
        regular(st, path)
    except Refused:
        posix.close(f)
        raise
    return f, st


def regular(st, path):
    if kind_of(st) == DIR:
        raise Refused("is_a_directory", "%s is a directory" % path)
    if kind_of(st) != REG:
        raise Refused("invalid", "%s is not a regular file" % path)


def lstat(fd, name, path):
    st = posix.stat(name or ".", dir_fd=fd, follow_symlinks=False)
    target = None
    if kind_of(st) == LNK:
        target = posix.readlink(name, dir_fd=fd)
    return file_of(path, st, target)


def joined(parts):
    return "/".join(parts)


class Body:
    """Sends a JSON list in pieces: it may be longer than a frame."""

    def __init__(self):
        self.parts, self.size, self.first = [b"["], 1, True

    def add(self, item):
        text = dumps(item)
        if not self.first:
            text = b"," + text
        self.first = False
        self.parts.append(text)
        self.size += len(text)
        if self.size >= CHUNK:
            self.flush()

    def flush(self):
        send_data(b"".join(self.parts))
        self.parts, self.size = [], 0

    def end(self, **fields):
        self.parts.append(b"]")
        self.flush()
        answer(**fields)


def send_data(data):
    for i in range(0, len(data), CHUNK):
        say(b"d", data[i:i + CHUNK])


def answer(**fields):
    say(b"a", dumps(fields))


def read_all(fd, limit):
    pieces, size = [], 0
    while size < limit:
        b = posix.read(fd, min(CHUNK * 4, limit - size))
        if not b:
            break
        pieces.append(b)
        size += len(b)
    return b"".join(pieces)


def write_all(fd, data):
    left = memoryview(data)
    while left:
        left = left[posix.write(fd, left):]


def incoming(tail):
    """Yields the request's data: the part sent with it, then the rest."""
    if tail:
        yield tail
    while True:
        b = posix.read(0, CHUNK)
        if not b:
            return
        yield b


# The operations.

def op_stat(q, tail):
    root = Root()
    fd, name = root.walk(q["path"], last=False)
    answer(file=lstat(fd, name, joined(root.parts(q["path"]))))


def op_list(q, tail):
    root = Root()
    fd = root.open_dir(q["path"], O_LIST)
    prefix = root.parts(q["path"])
    with posix.scandir(fd) as entries:
        names = []
        for e in entries:
            names.append(e.name)
            if len(names) > 20000:
                raise Refused("too_large", "%s has more than 20000 entries: use glob" % (q["path"] or "the workspace"))
    names.sort()
    body = Body()
    for name in names:
        try:
            body.add(lstat(fd, name, joined(prefix + [name])))
        except FileNotFoundError:
            pass  # removed since
    body.end()


def op_read(q, tail):
    f, st = Root().open_file(q["path"], posix.O_RDONLY)
    offset, left = q["offset"], q["limit"]
    if offset:
        posix.lseek(f, offset, 0)
    while left > 0:
        b = posix.read(f, min(CHUNK, left))
        if not b:
            break
        send_data(b)
        left -= len(b)
    answer(size=st.st_size)


def temp_name():
    return ".tmp-" + posix.urandom(8).hex()


class Temp:
    """A new file in the same directory as the file it will replace."""

    def __init__(self, fd, mode):
        self.dir, self.name = fd, temp_name()
        self.fd = posix.open(self.name, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | O_FILE, mode, dir_fd=fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        posix.close(self.fd)
        if self.name:
            try:
                posix.unlink(self.name, dir_fd=self.dir)
            except OSError:
                pass

    def become(self, name, new=False):
        if new:
            posix.link(self.name, name, src_dir_fd=self.dir, dst_dir_fd=self.dir, follow_symlinks=False)
        else:
            posix.rename(self.name, name, src_dir_fd=self.dir, dst_dir_fd=self.dir)
            self.name = None


def existing(fd, name, path):
    """Returns the stat of the regular file at a path, or None if nothing exists there."""
    try:
        st = posix.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    regular(st, path)
    return st


def op_write(q, tail):
    root, path = Root(), q["path"]
    fd, name = root.walk(path, make=True)
    if not name:
        raise Refused("is_a_directory", "%s is a directory" % (path or "the workspace"))
    st = existing(fd, name, path)
    if q["mode"] == "create" and st is not None:
        raise Refused("exists", "%s already exists" % path)
    if q["mode"] == "append":
        append(fd, name, path, tail)
    else:
        with Temp(fd, 0o644) as t:
            if st is not None:
                posix.fchmod(t.fd, st.st_mode & 0o777)
            for b in incoming(tail):
                write_all(t.fd, b)
            t.become(name, new=q["mode"] == "create")
    answer(file=lstat(fd, name, joined(root.parts(path))))


def append(fd, name, path, tail):
    f = posix.open(name, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | O_FILE, 0o644, dir_fd=fd)
    st = posix.fstat(f)
    regular(st, path)
    try:
        for b in incoming(tail):
            write_all(f, b)
    except OSError:
        posix.ftruncate(f, st.st_size)  # all or nothing
        raise


MAX_EDIT = 8 << 20


def op_edit(q, tail):
    root, path = Root(), q["path"]
    old, new = q["old"], q["new"]
    if not old:
        raise Refused("invalid", "old is empty, want the text to replace")
    if old == new:
        raise Refused("invalid", "old and new are the same")
    fd, name = root.walk(path)
    if not name:
        raise Refused("is_a_directory", "the workspace is a directory")
    f, st = open_regular(fd, name, path, posix.O_RDONLY)
    if st.st_size > MAX_EDIT:
        raise Refused("too_large", "%s has %d bytes, more than the %d that can be edited" % (path, st.st_size, MAX_EDIT))
    try:
        text = read_all(f, MAX_EDIT + 1).decode()
    except UnicodeDecodeError:
        raise Refused("not_text", "%s is not UTF-8 text" % path)
    n = text.count(old)
    if n == 0:
        raise Refused("no_match", "%s does not contain the text to replace: it must match exactly, including spaces and line breaks" % path)
    if n > 1 and not q.get("all"):
        raise Refused("ambiguous", "%s contains the text %d times: include more of its surroundings, or set all" % (path, n))
    if len(text) + n * (len(new) - len(old)) > MAX_EDIT:
        raise Refused("too_large", "%s would have more than the %d bytes that can be edited" % (path, MAX_EDIT))
    with Temp(fd, 0o644) as t:
        posix.fchmod(t.fd, st.st_mode & 0o777)
        write_all(t.fd, text.replace(old, new).encode())
        t.become(name)
    answer(n=n)


def op_mkdir(q, tail):
    root = Root()
    fd, name = root.walk(q["path"], make=True)
    if name:
        try:
            posix.mkdir(name, 0o755, dir_fd=fd)
        except FileExistsError:
            if kind_of(posix.stat(name, dir_fd=fd, follow_symlinks=False)) != DIR:
                raise Refused("exists", "%s already exists and is not a directory" % q["path"])
    answer()


def op_remove(q, tail):
    path = q["path"]
    fd, name = Root().walk(path, last=False)
    if not name:
        raise Refused("invalid", "the workspace itself cannot be removed")
    if kind_of(posix.stat(name, dir_fd=fd, follow_symlinks=False)) != DIR:
        posix.unlink(name, dir_fd=fd)
    elif q.get("recursive"):
        remove_tree(fd, name, fd, 0)
    else:
        try:
            posix.rmdir(name, dir_fd=fd)
        except OSError as e:
            if e.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise Refused("not_empty", "%s is not empty: set recursive to remove its contents" % path)
            raise
    answer()


def remove_tree(parent, name, base, depth):
    """Removes a directory. Directories nested deeper than 32 are first moved up to
    base, so neither the stack nor the number of open files grows with the depth."""
    if depth > 32:
        up = temp_name()
        posix.rename(name, up, src_dir_fd=parent, dst_dir_fd=base)
        _later.append(up)
        return
    try:
        fd = posix.open(name, O_LIST, dir_fd=parent)
    except PermissionError:
        posix.chmod(name, 0o700, dir_fd=parent)
        fd = posix.open(name, O_LIST, dir_fd=parent)
    try:
        posix.fchmod(fd, 0o700)
        with posix.scandir(fd) as entries:
            names = [(e.name, e.is_dir(follow_symlinks=False)) for e in entries]
        for n, is_dir in names:
            if is_dir:
                remove_tree(fd, n, base, depth + 1)
            else:
                posix.unlink(n, dir_fd=fd)
    finally:
        posix.close(fd)
    posix.rmdir(name, dir_fd=parent)
    while depth == 0 and _later:
        remove_tree(base, _later.pop(), base, 1)


_later = []


def op_move(q, tail):
    root = Root()
    a, from_name = root.walk(q["from"], last=False)
    b, to_name = root.walk(q["to"], last=False, make=True)
    if not from_name or not to_name:
        raise Refused("invalid", "the workspace itself cannot be moved or replaced")
    posix.stat(from_name, dir_fd=a, follow_symlinks=False)
    try:
        st = posix.stat(to_name, dir_fd=b, follow_symlinks=False)
    except FileNotFoundError:
        st = None
    if st is not None and not q.get("overwrite"):
        raise Refused("exists", "%s already exists: set overwrite to replace it" % q["to"])
    posix.rename(from_name, to_name, src_dir_fd=a, dst_dir_fd=b)
    answer()


def op_scan(q, tail):
    """Lists what is new below out, after a run whose child could not report it itself."""
    say(b"s", dumps(changed_files(tail)))


OPS = {
    "stat": op_stat, "list": op_list, "read": op_read, "write": op_write, "mkdir": op_mkdir, "remove": op_remove, "move": op_move,
    "glob": op_glob, "grep": op_grep, "edit": op_edit, "export": op_export, "import": op_import, "scan": op_scan,
    "survey": op_survey, "gather": op_gather,
}


class Ended(BaseException):
    """Handles the parent's signal to end the operation."""


def end_file_op(number, frame):
    raise Ended


def do_file(request, tail):
    _signal.signal(_signal.SIGTERM, end_file_op)
    about = request.get("path") or request.get("from") or request.get("pattern") or "the workspace"
    try:
        OPS[request["op"]](request, tail)
    except Refused as e:
        refuse(e.code, e.message)
    except OSError as e:
        refuse(*described(e, about))
    except ValueError as e:  # a name that the file system cannot have
        refuse("invalid", "%s: %s" % (about, e))
    except MemoryError:
        refuse("failed", "%s: the sandbox is out of memory" % about)
    except Ended:
        pass
