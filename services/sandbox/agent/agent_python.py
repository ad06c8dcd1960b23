# Runs Python code in a forked child, as the interpreter would; its last expression is
# the result.

RESULT_NAME = " result"  # not a name that code can use


def compile_code(code):
    """Compiles a script so that its last expression is kept under RESULT_NAME."""
    import _ast

    tree = compile(code, "<code>", "exec", 0x400, True)  # 0x400: PyCF_ONLY_AST
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        e = tree.body[-1]
        at = {"lineno": e.lineno, "col_offset": e.col_offset, "end_lineno": e.end_lineno, "end_col_offset": e.end_col_offset}
        target = _ast.Name(id=RESULT_NAME, ctx=_ast.Store(), **at)
        tree.body[-1] = _ast.Assign(targets=[target], value=e.value, **at)
    return compile(tree, "<code>", "exec", 0, True)


def remember_lines(linecache, code):
    """Lets tracebacks and inspect show the code's own lines."""
    lines = code.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    linecache.cache["<code>"] = (len(code), None, lines, "<code>")


class WhenImported:
    """An import hook that calls a function with a module once it is loaded."""

    def __init__(self, name, function):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.function(module)

        if not isinstance(spec.loader, type):  # a class is the loader of frozen modules, of all of them
            spec.loader.exec_module = exec_module
        return spec


def when_imported(name, function):
    module = sys.modules.get(name)
    if module is not None:
        function(module)
    else:
        sys.meta_path.insert(0, WhenImported(name, function))


def show_error(kind, error, tb):
    """Prints a traceback like the interpreter's, beginning in the code."""
    import traceback

    while tb is not None and tb.tb_frame.f_code.co_filename == "agent.py":
        tb = tb.tb_next
    if sys.excepthook is not sys.__excepthook__:
        try:
            sys.excepthook(kind, error, tb)
            return
        except BaseException:
            pass  # a failing hook; the error itself is what matters
    traceback.print_exception(kind, error, tb)


def show_thread_error(args):
    if args.exc_type is SystemExit:
        return
    print("Exception in thread %s:" % (args.thread.name if args.thread else "?"), file=sys.stderr)
    show_error(args.exc_type, args.exc_value, args.exc_traceback)


def exit_code(error):
    """Returns the exit code of a SystemExit, as the interpreter does."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def result_of(value):
    """Returns the field of the answer with value, as JSON text."""
    try:
        text = dumps(value)
        if len(text) <= MAX_RESULT:
            return b'"result":' + text
    except (ValueError, TypeError, RecursionError, MemoryError):
        pass
    try:
        text = repr(value)
    except BaseException as e:
        text = "<%s whose repr fails: %s>" % (type(value).__name__, type(e).__name__)
    # 4 bytes a character at most; the other side cuts to MAX_RESULT bytes.
    return b'"repr":' + dumps(text[:MAX_RESULT])


def save_figures():
    """Saves matplotlib's open figures as out/figure-<n>.png."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    try:
        numbers = plt.get_fignums()
        if numbers:
            make_out()
        for n in numbers[:MAX_FILES]:
            plt.figure(n).savefig("%s/out/figure-%d.png" % (PLACE["workspace"], n))
    except Exception as e:
        print("cannot save the figures: %s: %s" % (type(e).__name__, e), file=sys.stderr)


def run_python(request, before):
    channel = posix.fstat(RESULT_FD)
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    sys.argv = [""]
    sys.path[:] = python_path()
    for name, value in (request.get("env") or {}).items():
        sys.modules["os"].environ[name] = value
    when_imported("linecache", lambda m: remember_lines(m, request["code"]))
    when_imported("threading", lambda m: setattr(m, "excepthook", show_thread_error))
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    if "gc" in sys.modules:
        sys.modules["gc"].enable()
    me = posix.getpid()
    begin_code(before)
    status, value = run_code(request["code"], module.__dict__)
    if posix.getpid() != me:  # a fork of the code that reached the script's end: it sends nothing
        posix._exit(finish_python(status, figures=False))
    answer = [result_of(value)] if value is not None else []
    value = None
    status = finish_python(status)
    try:
        answer.append(dumps(changed_files(before))[1:-1])
        now = posix.fstat(RESULT_FD)
        if (now.st_dev, now.st_ino) == (channel.st_dev, channel.st_ino):  # otherwise the code has closed or replaced it
            send_frames((b"s", b"{" + b",".join(answer) + b"}"), (b"e", bytes((status,)) if alone() else b""))
    except (OSError, MemoryError):
        pass
    posix._exit(status)


def alone():
    """Reports whether only this thread is left of the code."""
    import _thread

    if _thread._count():
        return False
    try:
        posix.waitpid(-1, posix.WNOHANG)
    except ChildProcessError:
        return True
    except OSError:
        pass
    return False


def run_code(code, names):
    try:
        names["__builtins__"] = sys.modules["builtins"]
        exec(compile_code(code), names)
        return 0, names.pop(RESULT_NAME, None)
    except SystemExit as e:
        return exit_code(e), None
    except BaseException as e:
        try:
            show_error(type(e), e, e.__traceback__)
        except BaseException:
            posix.write(2, ("%s, and the traceback could not be printed\n" % type(e).__name__).encode())
        return 130 if isinstance(e, KeyboardInterrupt) else 1, None


def finish_python(status, figures=True):
    """Does what the interpreter does on exit: threads, atexit, flush."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if figures:
            save_figures()
        import atexit

        atexit._run_exitfuncs()
    except SystemExit as e:
        status = exit_code(e)
    except BaseException as e:
        show_error(type(e), e, e.__traceback__)
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass  # closed by the code, or without a reader
    return status


_standard = _site = None


def python_path():
    """sys.path of runs: the workspace, the standard library, the session's packages,
    the distribution's."""
    path = [PLACE["workspace"]] + _standard
    try:
        if posix.listdir(PLACE["packages"]):
            path.append(PLACE["packages"])
    except OSError:
        pass
    return path + _site


def start_site():
    """Does, in the parent, what -S makes the interpreter skip at its start: the
    distribution's packages and the names of site. It ignores .pth files: they take as
    long as everything else, and are code that packages run at every start."""
    global _standard, _site
    import os
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()
    _standard = list(sys.path)
    _site = [d for d in site.getsitepackages() if d not in sys.path and os.path.isdir(d)]
