package mqttclient

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"time"
)

// The bounds of packets that are not messages, and of a message beside its payload.
const (
	maxPacket   = 64 << 10
	maxOverhead = 2 + 65535 + 2 // topic and packet id
)

// writeTimeout is how long a broker may take to read a packet.
const writeTimeout = 10 * time.Second

var errPacket = errors.New("the broker sent an invalid packet")

// guard is a connection that bounds the packets a broker sends: the library allocates
// whatever length a packet announces. A message that is too large arrives with its payload
// cut to one byte more than is allowed, so that its receiver can drop it and acknowledge it.
type guard struct {
	net.Conn
	in         *bufio.Reader
	maxMessage int // remaining length of a message

	header []byte // of the current packet, not yet read by the client
	pass   int    // bytes of the packet that the client gets
	skip   int    // bytes of the packet after those
}

func newGuard(c net.Conn, maxPayload int64) *guard {
	return &guard{Conn: c, in: bufio.NewReaderSize(c, maxPacket), maxMessage: maxOverhead + int(maxPayload) + 1}
}

// Write implements [net.Conn].
func (g *guard) Write(p []byte) (int, error) {
	if err := g.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return g.Conn.Write(p)
}

// Read implements [net.Conn].
func (g *guard) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case len(g.header) > 0:
			n := copy(p, g.header)
			g.header = g.header[n:]
			return n, nil
		case g.pass > 0:
			n, err := g.in.Read(p[:min(len(p), g.pass)])
			g.pass -= n
			return n, err
		case g.skip > 0:
			n, err := g.in.Discard(g.skip)
			g.skip -= n
			if err != nil {
				return 0, err
			}
		default:
			if err := g.next(); err != nil {
				return 0, err
			}
		}
	}
}

// next reads the fixed header of the next packet.
func (g *guard) next() error {
	kind, err := g.in.ReadByte()
	if err != nil {
		return err
	}
	length := 0
	for shift := 0; ; shift += 7 {
		b, err := g.in.ReadByte()
		if err != nil {
			return err
		}
		length |= int(b&0x7f) << shift
		if b&0x80 == 0 {
			break
		}
		if shift == 21 {
			return fmt.Errorf("%w: its length has more than four bytes", errPacket)
		}
	}
	const publish = 3
	limit := maxPacket
	if kind>>4 == publish {
		limit = g.maxMessage
	} else if length > limit {
		return fmt.Errorf("%w: it has %d bytes and is not a message", errPacket, length)
	}
	g.pass = min(length, limit)
	g.skip = length - g.pass
	g.header = append(g.header[:0:0], kind)
	for n := g.pass; ; {
		b := byte(n & 0x7f)
		if n >>= 7; n > 0 {
			g.header = append(g.header, b|0x80)
			continue
		}
		g.header = append(g.header, b)
		return nil
	}
}
