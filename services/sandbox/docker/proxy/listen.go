package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// socketMode lets the owner and the group of the socket use it.
const socketMode = 0o660

// Listen listens on a unix socket. It replaces one that a dead process has left.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("the socket: %s exists and is not a socket; choose another path", path)
	default:
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("the socket: another process serves %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("the socket: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path) // the umask leaves others without access
	if err != nil {
		return nil, fmt.Errorf("the socket: %w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("the socket: %w", err), l.Close())
	}
	return l, nil
}

// limited refuses connections above a number.
type limited struct {
	net.Listener
	most int64
	open atomic.Int64
	full func()
}

// crowded is the answer to a connection too many. With its length, a client reads it whole before it notices that
// its request was not read.
var crowded = func(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
}(`{"message":"the engine proxy has reached its connection limit"}`)

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		u, ok := c.(*net.UnixConn)
		if ok && l.open.Add(1) <= l.most {
			return &counted{UnixConn: u, open: &l.open}, nil
		}
		if ok {
			l.open.Add(-1)
		}
		l.full()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(crowded) // it has room in the connection's buffer
		_ = c.Close()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	*net.UnixConn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.UnixConn.Close()
}
