package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// op is one operation of NATS's text protocol.
type op struct {
	verb    string // PUB, HPUB, SUB, MSG, HMSG, -ERR, …
	subject string
	queue   string // SUB
	reply   string // PUB, HPUB, MSG, HMSG
	header  nats.Header
	body    []byte
	text    string // of -ERR
}

// carries reports whether the operation carries a message.
func (o op) carries() bool {
	switch o.verb {
	case "PUB", "HPUB", "MSG", "HMSG":
		return true
	}
	return false
}

// readOp reads one operation and its raw bytes. An invalid operation is returned
// unchanged, with an error that is not the reader's.
func readOp(r *bufio.Reader) (raw []byte, o op, err error) {
	raw, err = r.ReadBytes('\n')
	if err != nil {
		return raw, op{}, err
	}
	f := strings.Fields(string(raw))
	if len(f) == 0 {
		return raw, op{}, nil
	}
	o.verb = strings.ToUpper(f[0])
	args := f[1:]
	switch o.verb {
	case "SUB":
		if len(args) < 2 {
			return raw, o, errNoSense(raw)
		}
		o.subject = args[0]
		if len(args) > 2 {
			o.queue = args[1]
		}
	case "-ERR":
		o.text = strings.Trim(strings.TrimSpace(string(raw[len("-ERR"):])), "'")
	}
	if !o.carries() {
		return raw, o, nil
	}
	rest, err := o.readMessage(r, args)
	if err != nil && rest == nil {
		return raw, o, errNoSense(raw)
	}
	return append(raw, rest...), o, err
}

func errNoSense(line []byte) error {
	return fmt.Errorf("the line %q is not valid in NATS's protocol", quote(line))
}

// readMessage reads header and body, whose lengths are the line's last fields.
func (o *op) readMessage(r *bufio.Reader, args []string) ([]byte, error) {
	lengths := 1
	if o.verb[0] == 'H' {
		lengths = 2
	}
	names := len(args) - lengths // subject, of MSG the sid, perhaps a reply subject
	first := 1
	if strings.HasSuffix(o.verb, "MSG") {
		first = 2
	}
	if names < first || names > first+1 {
		return nil, errNoSense(nil)
	}
	o.subject = args[0]
	if names > first {
		o.reply = args[first]
	}
	total, err := strconv.Atoi(args[len(args)-1])
	if err != nil || total < 0 || total > 64<<20 {
		return nil, errNoSense(nil)
	}
	head := 0
	if lengths == 2 {
		if head, err = strconv.Atoi(args[len(args)-2]); err != nil || head < 0 || head > total {
			return nil, errNoSense(nil)
		}
	}
	b := make([]byte, total+2)
	n, err := io.ReadFull(r, b)
	if err != nil {
		return b[:n], err
	}
	o.body = b[head:total]
	if head > 0 {
		o.header = readHeader(b[:head])
	}
	return b, nil
}

func readHeader(b []byte) nats.Header {
	h := nats.Header{}
	lines := bytes.Split(b, []byte("\r\n"))
	for _, l := range lines[1:] {
		if name, value, ok := strings.Cut(string(l), ":"); ok {
			h.Add(name, strings.TrimSpace(value))
		}
	}
	if f := strings.Fields(string(lines[0])); len(f) > 1 {
		h.Set("Status", f[1])
	}
	return h
}
