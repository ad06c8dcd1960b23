package mailtest

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// Dialog is a connection of a scripted server.
type Dialog struct {
	net.Conn
	in *bufio.Reader
}

// Say sends lines.
func (d *Dialog) Say(lines ...string) {
	_, _ = d.Write([]byte(strings.Join(lines, "\r\n") + "\r\n")) // the client may have gone
}

// Hear reads a line, without its end; "" if the client has gone.
func (d *Dialog) Hear() string {
	line, err := d.in.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimRight(line, "\r\n")
}

// Hang waits until the client gives up.
func (d *Dialog) Hang() {
	for d.Hear() != "" {
	}
}

// Script listens until the test ends and calls serve for each connection, which it then closes.
func Script(tb testing.TB, serve func(*Dialog)) (port int) {
	tb.Helper()
	var c net.ListenConfig
	ln, err := c.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(&Dialog{conn, bufio.NewReader(conn)})
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
	return ln.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
}

// SMTP is a scripted SMTP server that accepts a letter, except where answers has another reply to a
// command. The key "." is the end of the letter, "greeting" the beginning. The reply "hang" is
// none at all, "cut" ends the connection.
func SMTP(tb testing.TB, answers map[string]string) (port int) {
	tb.Helper()
	standard := map[string]string{
		"greeting": "220 scripted", "EHLO": "250-scripted\r\n250 AUTH PLAIN", "AUTH": "235 welcome", "MAIL": "250 ok",
		"RCPT": "250 ok", "DATA": "354 go on", ".": "250 accepted", "QUIT": "221 bye",
	}
	return Script(tb, func(d *Dialog) {
		answer := func(key string) bool {
			reply, ok := answers[key]
			if !ok {
				reply = standard[key]
			}
			switch reply {
			case "hang":
				d.Hang()
				return false
			case "cut", "":
				return false
			}
			d.Say(reply)
			return true
		}
		for ok := answer("greeting"); ok; {
			line := d.Hear()
			command, _, _ := strings.Cut(strings.ToUpper(line), " ")
			if ok = answer(command); ok && command == "DATA" {
				for line = d.Hear(); line != "."; line = d.Hear() {
					if line == "" && d.gone() {
						return
					}
				}
				ok = answer(".")
			}
		}
	})
}

// gone reports whether the client has ended the connection.
func (d *Dialog) gone() bool {
	_, err := d.in.Peek(1)
	return err != nil
}
