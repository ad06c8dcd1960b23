"""Creates a package set: runs pip and checks the result.

It runs in a sandbox with a network, where the set's directory is writable and nothing
else is kept. Its input is one JSON argument; its output are these lines:

    collecting NAME | downloading FILE (SIZE) | installing N packages | retrying | checking
    done BYTES FILES NAME-VERSION ...
    failed CODE: DETAIL

The index and its packages are untrusted. pip runs in a child that cannot start processes
and can write only to the set, whatever pip itself would allow.
"""
import json
import os
import re
import resource
import select
import signal
import stat
import sys
import time

MAX_METADATA = 16 << 20  # bytes of one file of a wheel's metadata, which pip reads whole
MAX_ADDRESSES = 960 << 20  # bytes of pip's address space: less than the sandbox has, so that pip fails and not the sandbox
MAX_LINES = 200  # of progress
DROPPED = re.compile(r".*\.pth|(site|user)customize(\..*)?", re.S)  # files that an interpreter runs automatically


class Refused(Exception):
    """A failed installation: a code of deps.Code, and why."""

    def __init__(self, code, detail):
        super().__init__(detail)
        self.code, self.detail = code, detail


# --- what runs in pip's process


def guard(target, max_bytes, max_files):
    """Confines pip to its task. Everything else fails."""
    starts = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def inside(path):
        if isinstance(path, int):
            return True
        path = os.path.realpath(os.fsdecode(path))
        return path.startswith(target + os.sep) or path == os.devnull

    def hook(event, args):
        if event in starts:
            raise PermissionError(f"skandha: {event}: no process may start while packages are installed")
        if event in ("os.symlink", "os.link"):
            raise PermissionError(f"skandha: {event}: a package set must not have links")
        if event == "open" and (args[2] or 0) & writes and not inside(args[0]):
            raise PermissionError(f"skandha: writing outside the package set: {args[0]!r}")

    import zipfile

    from pip._internal.exceptions import InstallationError
    from pip._vendor.packaging import requirements

    # --only-binary does not cover these: pip would fetch and build whatever they name.
    parse = requirements.Requirement.__init__

    def named(self, *args, **kwargs):
        parse(self, *args, **kwargs)
        if self.url:
            raise InstallationError(f"skandha: a package requires {self.name} from a URL")

    requirements.Requirement.__init__ = named

    # The declared sizes bound what zipfile unpacks.
    opened = zipfile.ZipFile.__init__

    def measured(self, *args, **kwargs):
        opened(self, *args, **kwargs)
        entries = self.infolist()
        if sum(e.file_size for e in entries) > max_bytes or len(entries) > max_files:
            raise InstallationError("skandha: too large: a wheel unpacks to more than the set may hold")
        if any(e.file_size > MAX_METADATA and ".dist-info/" in e.filename for e in entries):
            raise InstallationError("skandha: too large: the metadata of a wheel")

    zipfile.ZipFile.__init__ = measured
    sys.addaudithook(hook)


def pip(order, target, work):
    """Runs pip in this process; it does not return."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["max_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESSES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Even --isolated does not skip the machine's configuration file.
    os.environ.clear()
    os.environ.update(PATH="/usr/local/bin:/usr/bin:/bin", HOME=work, TMPDIR=work, LANG="C.UTF-8", PIP_CONFIG_FILE=os.devnull)
    os.chdir(work)
    sys.stdout.reconfigure(line_buffering=True)
    sys.argv = ["pip", *order["pip"], "--", *order["requirements"]]
    import runpy

    try:
        guard(target, order["max_bytes"], order["max_files"])
    except ImportError as e:
        print(f"skandha: no pip: {e}", flush=True)
        os._exit(1)
    except AttributeError as e:
        print(f"skandha: this pip cannot be guarded: {e}", flush=True)
        os._exit(1)
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


# --- what looks after it


class Log:
    """Reads pip's output: reports its progress, and why it gave up."""

    NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)"

    def __init__(self):
        self.reported, self.last = 0, ""
        self.skipped = {}  # project: why its files do not fit
        self.unreached, self.errors, self.raised, self.causes = [], [], [], []
        self.installed = ""
        self.in_conflict = False

    def report(self, line):
        line = plain(line)
        if line != self.last and self.reported < MAX_LINES:
            self.reported, self.last = self.reported + 1, line
            say(line)

    def line(self, text):
        at = text.strip()
        if m := re.match(r"Collecting " + self.NAME, at):
            self.report("collecting " + m[1])
        elif m := re.match(r"Downloading (\S+)(?: (\([^)]*\)))?", at):
            self.report("downloading " + m[1].rsplit("/", 1)[-1] + (" " + m[2] if m[2] else ""))
        elif at.startswith("Installing collected packages:"):
            self.report(f"installing {at.count(',') + 1} packages")
        elif at.startswith("Successfully installed "):
            self.installed = at.removeprefix("Successfully installed ")
        elif at.startswith("WARNING: Retrying"):
            self.report("retrying")
            note(self.unreached, at)
        elif m := re.match(r"Could not fetch URL (\S+): (.*)", at):
            if not re.match(r"(404|410) ", m[2]):
                note(self.unreached, m[2])
        elif at.startswith("Skipping link: "):
            self.skip(at)
        elif text.startswith("ERROR: ") or at.startswith("skandha: "):
            note(self.errors, at.removeprefix("ERROR: "))
        elif re.match(r"[A-Za-z_.]+(Error|Exception|BadZipFile|Conflict\w*)(:|$)", at):
            self.raised = [*self.raised[-5:], at]
        self.conflict(at)

    def skip(self, at):
        link = re.search(r"/" + self.NAME + r"-[0-9][^/]*?(?: \(.*)?$", at.partition(" (from ")[0])
        if m := re.match(r"Skipping link: No sources permitted for " + self.NAME, at):
            self.skipped.setdefault(canonical(m[1]), set()).add("source")
        elif link and " are compatible" in at:
            self.skipped.setdefault(canonical(link[1].split("-", 1)[0]), set()).add("platform")
        elif link and " Requires-Python " in at:
            self.skipped.setdefault(canonical(link[1].split("-", 1)[0]), set()).add("python")

    def conflict(self, at):
        if at == "The conflict is caused by:":
            self.in_conflict = True
        elif self.in_conflict and (" depends on " in at or at.startswith("The user requested ")):
            note(self.causes, at)
        elif at:
            self.in_conflict = False

    def why(self, code):
        """Converts pip's failure."""
        errors = "\n".join(self.errors)
        everything = "\n".join(self.errors + self.raised)
        if own := re.search(r"skandha: (.*)", everything):
            codes = {"no pip": "no_pip", "this pip": "no_pip", "too large": "too_large"}
            return Refused(next((c for words, c in codes.items() if own[1].startswith(words)), "refused"), own[1])
        if re.search(r"No space left|File too large|Disk quota exceeded|MemoryError", everything):
            return Refused("too_large", "")
        if self.causes or "ResolutionImpossible" in errors:
            return Refused("conflict", "; ".join(self.causes[:6]))
        if "requires a different Python" in errors:
            return Refused("no_wheel", first(self.errors))
        if m := re.search(r"find a version that satisfies the requirement (.+?) \(from versions: (.*)\)", errors):
            return self.unmatched(m[1], m[2])
        if re.search(r"DO NOT MATCH THE HASHES", errors):
            return Refused("refused", "a file does not match the index's hash")
        if re.search(r"trying to install outside|is invalid|has an invalid|BadZipFile|Unknown scheme", everything):
            return Refused("refused", first(self.errors))
        if self.unreached or re.search(r"HTTP ?error|Connection|RetryError|Max retries|IncompleteRead|[Tt]imed? ?out", everything):
            return self.unreachable(everything)
        if os.WIFSIGNALED(code):
            return Refused("failed", f"pip was ended by signal {os.WTERMSIG(code)}")
        return Refused("failed", last(self.raised) or last(self.errors) or f"pip ended with code {os.waitstatus_to_exitcode(code)}")

    def unmatched(self, wanted, versions):
        name = canonical(re.match(self.NAME, wanted)[1])
        if versions != "none":
            return Refused("not_found", f"{wanted}: the index has {', '.join(versions.split(', ')[-10:])}")
        if self.unreached:
            return self.unreachable("")
        if why := self.skipped.get(name):
            words = {"source": "source only", "platform": "wheels for other platforms", "python": "wheels for other versions of Python"}
            return Refused("no_wheel", f"{wanted}: " + ", ".join(words[w] for w in sorted(why)))
        return Refused("not_found", wanted)

    def unreachable(self, errors):
        """Reports how, without naming a host."""
        m = re.search(
            r"too many \d+ error responses|\d{3} (?:Client|Server) Error|certificate verify failed|Connection refused|Network is unreachable"
            r"|No route to host|Name or service not known|Temporary failure in name resolution|Connection reset|Connection aborted|[Tt]imed out|IncompleteRead",
            "\n".join(self.unreached) + errors,
        )
        return Refused("unreachable", m[0] if m else "")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def note(kept, line):
    if len(kept) < 20:
        kept.append(line)


def first(lines):
    return lines[0] if lines else ""


def last(lines):
    return lines[-1] if lines else ""


def plain(text):
    """Returns printable ASCII on one line, shortened, without the hosts of URLs."""
    text = re.sub(r"[a-z+]+://[^\s/'\"<>]*", "", text[:2000])
    text = re.sub(r"host='[^']*', port=\d+", "the index", text)
    text = re.sub(r"/[^\s'\"]*/\.installing/(?:pip-[^/]*/)?", "", text)
    return re.sub(r"[^ -~]", "?", text)[:400]


def say(line):
    print(line, flush=True)


def watch(child, pipe, order, target, log):
    """Reads until pip ends, and ends it if it fills the disk."""
    rest, looked, pause = b"", time.monotonic(), 0.3
    while True:
        if select.select([pipe], [], [], pause)[0]:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:8192]  # the rest of such a long line is useless
            for line in lines:
                log.line(line[:8192].decode("utf-8", "replace"))
        began = time.monotonic()
        if began - looked > pause:
            try:
                measure(target, 2 * order["max_bytes"], 2 * order["max_files"], lambda entry: None)
            except Refused:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise
            looked = time.monotonic()
            pause = max(0.3, 10 * (looked - began))
    log.line(rest.decode("utf-8", "replace"))
    return os.waitpid(child, 0)[1]


def measure(directory, max_bytes, max_files, look):
    """Counts bytes and files below the directory; look sees each entry first, and
    returns whether it has removed it."""
    size = files = 0
    todo = [directory]
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except FileNotFoundError:  # pip moves things while it works
            continue
        for entry in entries:
            if look(entry):
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            files += 1
            size += max(info.st_size, info.st_blocks * 512) if stat.S_ISREG(info.st_mode) else 0
            if entry.is_dir(follow_symlinks=False):
                todo.append(entry.path)
        if size > max_bytes:
            raise Refused("too_large", f"more than {max_bytes >> 20} MiB")
        if files > max_files:
            raise Refused("too_large", f"more than {max_files} files")
    return size, files


def check(target, max_bytes, max_files):
    """Checks the set: only plain files and directories, nothing that runs automatically,
    nothing that only root may do."""

    def look(entry):
        info = entry.stat(follow_symlinks=False)
        name = os.path.relpath(entry.path, target)
        if stat.S_ISLNK(info.st_mode):
            raise Refused("refused", f"the packages hold a symbolic link: {name}")
        if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
            raise Refused("refused", f"the packages hold a special file: {name}")
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            raise Refused("refused", f"the packages hold a hard link: {name}")
        if os.path.dirname(entry.path) == target and DROPPED.fullmatch(entry.name):
            remove(entry.path)
            return True
        if os.path.dirname(entry.path) == os.path.join(target, "__pycache__") and DROPPED.fullmatch(entry.name):
            remove(entry.path)
            return True
        os.chmod(entry.path, 0o755 if stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100 else 0o644)
        return False

    return measure(target, max_bytes, max_files, look)


def remove(path):
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def make(order):
    target = os.path.realpath(order["target"])
    work = os.path.join(target, ".installing")
    os.umask(0o022)
    os.mkdir(work, 0o700)
    pipe, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.close(pipe)
        os.close(theirs)
        pip(order, target, work)
    os.close(theirs)
    log = Log()
    code = watch(child, pipe, order, target, log)
    if code != 0:
        raise log.why(code)
    say("checking")
    remove(work)
    size, files = check(target, order["max_bytes"], order["max_files"])
    say(plain(f"done {size} {files} {log.installed}"))


def main():
    try:
        make(json.loads(sys.argv[1]))
    except Refused as e:
        say(plain(f"failed {e.code}: {e.detail}"))
        sys.exit(3)
    except OSError as e:
        say(plain(f"failed {'too_large' if e.errno in (27, 28, 122) else 'failed'}: {e}"))
        sys.exit(3)


if __name__ == "__main__":
    main()
