import ctypes, errno, os, select, signal, socket, stat, struct, sys, threading, time
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
def syscall(nr, *args):
    ctypes.set_errno(0)
    r = _libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r
def attempt(f, *args):
    try:
        r = f(*args)
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
    except Exception as e:
        return type(e).__name__
    return "done: %.80r" % (r,)
def put(path, data, flags=os.O_WRONLY):
    fd = os.open(path, flags | os.O_NONBLOCK)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)
def get(path, n=4096):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, n)
    finally:
        os.close(fd)
def child(f):
    pid = os.fork()
    if pid == 0:
        try:
            f()
        finally:
            os._exit(0)
    return pid
