# Finding files by their names and their content.

def component_regex(pattern):
    """Returns the regex of one component of a glob: * ? [abc] [!abc]."""
    import re

    out, i = [], 0
    while i < len(pattern):
        c = pattern[i]
        i += 1
        if c == "*":
            if not out or out[-1] != "[^/]*":
                out.append("[^/]*")
        elif c == "?":
            out.append("[^/]")
        elif c == "[":
            j = pattern.find("]", i + 2 if pattern[i:i + 1] == "!" else i + 1)
            if j < 0:
                out.append("\\[")
                continue
            body = pattern[i:j].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("&", "\\&").replace("~", "\\~").replace("|", "\\|")
            out.append("[" + ("^" + body[1:] if body.startswith("!") else body) + "]")
            i = j + 1
        else:
            out.append(re.escape(c))
    try:
        return re.compile("(?s:" + "".join(out) + ")\\Z")
    except re.error as e:
        raise Refused("invalid", "invalid glob %r: %s" % (pattern, e))


def component_match(pattern, name):
    if name.startswith(".") and not pattern.startswith("."):
        return False  # hidden, unless requested
    if not any(c in pattern for c in "*?["):
        return name == pattern
    rx = _components.get(pattern)
    if rx is None:
        rx = _components[pattern] = component_regex(pattern)
    return rx.match(name) is not None


_components = {}


def path_match(patterns, names):
    """Reports whether the components match; ** matches any number of them."""
    states = {0}
    for name in names + [None]:
        todo = list(states)
        for s in todo:  # ** also matches none
            if s < len(patterns) and patterns[s] == "**" and s + 1 not in states:
                states.add(s + 1)
                todo.append(s + 1)
        if name is None:
            return len(patterns) in states
        after = set()
        for s in states:
            if s == len(patterns):
                continue
            if patterns[s] == "**":
                if not name.startswith("."):
                    after.add(s)
            elif component_match(patterns[s], name):
                after.add(s + 1)
        states = after
        if not states:
            return False


MAX_SEARCH = 100000  # entries that a search examines


class TreeWalk:
    """Yields (directory fd, name, components, stat) below a directory, in
    order, without following links. more: it has stopped at MAX_SEARCH. closed: how many
    directories cannot be read."""

    def __init__(self, fd, prefix, hidden=False):
        self.fd, self.prefix, self.hidden, self.left, self.more = fd, prefix, hidden, MAX_SEARCH, False
        self.closed = 0

    def __iter__(self):
        return self.dir(self.fd, self.prefix)

    def dir(self, fd, prefix):
        try:
            with posix.scandir(fd) as entries:
                names = []
                for e in entries:
                    names.append(e.name)
                    if len(names) > self.left:
                        self.more = True
                        break
        except OSError:
            return
        self.left -= len(names)
        names.sort()
        for name in names:
            if name.startswith(".") and not self.hidden:
                continue
            try:
                st = posix.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue
            parts = prefix + [name]
            yield fd, name, parts, st
            if kind_of(st) == DIR:
                if len(parts) >= MAX_DEPTH:
                    self.more = True
                    continue
                try:
                    sub = posix.open(name, O_LIST, dir_fd=fd)
                except OSError:
                    self.closed += 1
                    continue
                try:
                    yield from self.dir(sub, parts)
                finally:
                    posix.close(sub)


def fixed_prefix(patterns):
    """Returns the leading components of a glob that are not patterns."""
    n = 0
    while n < len(patterns) - 1 and not any(c in patterns[n] for c in "*?["):
        n += 1
    return n


def op_glob(q, tail):
    root = Root()
    patterns = root.parts(q["pattern"])
    if not patterns:
        raise Refused("invalid", "the glob is empty, want e.g. **/*.py")
    n = fixed_prefix(patterns)
    body, found, more = Body(), 0, False
    try:
        fd = root.open_dir(joined(patterns[:n]), O_LIST)
    except (FileNotFoundError, NotADirectoryError):
        return body.end(more=False)
    hidden = any(p.startswith(".") for p in patterns[n:])
    walk = TreeWalk(fd, patterns[:n], hidden)
    for fd, name, parts, st in walk:
        if path_match(patterns[n:], parts[n:]):
            if found >= q["max"]:
                more = True
                break
            found += 1
            try:
                body.add(lstat(fd, name, joined(parts)))
            except OSError:
                pass
    body.end(more=more or walk.more)


def op_grep(q, tail):
    import re

    try:
        rx = re.compile(q["pattern"], re.IGNORECASE if q.get("ignore_case") else 0)
    except (re.error, RecursionError, OverflowError) as e:
        raise Refused("invalid", "invalid regular expression: %s" % e)
    root = Root()
    glob = root.parts(q["glob"]) if q.get("glob") else None
    found, body, more = 0, Body(), False
    for fd, name, parts, base in grep_files(root, q["path"]):
        if fd is None:
            more = True
            break
        if glob and not path_match(glob, parts[-1:] if len(glob) == 1 else parts[base:]):
            continue
        for number, line in matching_lines(fd, name, rx):
            if found >= q["max"]:
                return body.end(more=True)
            found += 1
            body.add({"path": joined(parts), "line": number, "text": cut_text(line, 500)})
    body.end(more=more)


def grep_files(root, path):
    """Yields (directory, name, components, how many of them are path's); fd None: there are more."""
    prefix = root.parts(path)
    fd, name = root.walk(path)
    if name and kind_of(posix.stat(name, dir_fd=fd, follow_symlinks=False)) == REG:
        yield fd, name, prefix, len(prefix) - 1
        return
    walk = TreeWalk(posix.open(name or ".", O_LIST, dir_fd=fd), prefix)
    for fd, name, parts, st in walk:
        if kind_of(st) == REG:
            yield fd, name, parts, len(prefix)
    if walk.more:
        yield None, None, None, 0


MAX_GREP = 32 << 20  # bytes of a file that are searched


def matching_lines(fd, name, rx):
    try:
        f, st = open_regular(fd, name, name, posix.O_RDONLY)
    except (OSError, Refused):
        return
    try:
        data = read_all(f, MAX_GREP)
    except OSError:
        return
    finally:
        posix.close(f)
    if b"\0" in data[:8192]:
        return
    for n, line in enumerate(data.split(b"\n"), 1):
        text = line.decode(errors="replace").rstrip("\r")
        if rx.search(text):
            yield n, text


def cut_text(text, size):
    b = text.encode(errors="replace")
    return text if len(b) <= size else b[:size].decode(errors="ignore")
