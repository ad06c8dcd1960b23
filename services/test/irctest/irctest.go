// Package irctest runs a private ngircd for a test, and has a client that counts what people in a
// channel see. The client shares no code with the gateway.
package irctest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
)

// Server is an ngircd in a separate process. It keeps its port over restarts.
type Server struct {
	Addr string

	t       testing.TB
	program string
	file    string
	cmd     *exec.Cmd
}

// Start runs ngircd until the test ends. Without the program it skips the test, or fails it if the
// environment says SKANDHA_REQUIRE=all.
func Start(t testing.TB) *Server { return start(t, "") }

// StartTLS is [Start] with a port for TLS alone, and the certificate and key in the files.
func StartTLS(t testing.TB, cert, key string) *Server {
	return start(t, fmt.Sprintf("[SSL]\nCertFile = %s\nKeyFile = %s\nPorts = %%d\n", cert, key))
}

// start starts a server; ssl is the section of its configuration with a place for the port, or empty.
func start(t testing.TB, ssl string) *Server {
	t.Helper()
	program, err := exec.LookPath("ngircd")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/ngircd")
	}
	if err != nil {
		const missing = "NOT TESTED: ngircd is not installed"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	port := natstest.FreePort(t)
	s := &Server{
		Addr: fmt.Sprintf("127.0.0.1:%d", port), t: t, program: program, file: filepath.Join(t.TempDir(), "ngircd.conf"),
	}
	ports := fmt.Sprintf("Ports = %d\n", port)
	if ssl != "" {
		ports, ssl = "", fmt.Sprintf(ssl, port)
	}
	config := ssl + fmt.Sprintf(`[Global]
Name = irc.test.invalid
Info = test
Listen = 127.0.0.1
%sMotdPhrase = test
[Limits]
MaxConnectionsIP = 0
MaxJoins = 100
MaxNickLength = 12
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
[Operator]
Name = op
Password = op
`, ports)
	if os.Geteuid() == 0 {
		config = strings.Replace(config, "Info = test\n", "Info = test\nServerUID = root\nServerGID = root\n", 1)
	}
	if err := os.WriteFile(s.file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Kill ends the server by SIGKILL and waits until it has ended.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Restart starts the server, after a kill if it runs, and waits until it accepts connections.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.cmd = exec.CommandContext(context.WithoutCancel(s.t.Context()), s.program, "-n", "-f", s.file)
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	natstest.Eventually(s.t, "ngircd to accept connections", func() bool {
		c, err := dial(s.t, s.Addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

func dial(t testing.TB, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(context.WithoutCancel(t.Context()), "tcp", address)
}

// Line is what a client has seen.
type Line struct{ From, Command, Target, Text string }

// Client is a person in channels of a server.
type Client struct {
	Nick string

	t    testing.TB
	conn net.Conn

	mu    sync.Mutex
	lines []Line
	raw   []string
	gone  bool
}

// Dial connects a person, until the test ends, and waits until the server has accepted it.
func (s *Server) Dial(t testing.TB, nick string) *Client {
	t.Helper()
	conn, err := dial(t, s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &Client{Nick: nick, t: t, conn: conn}
	go c.read()
	c.Send("USER " + nick + " 0 * :" + nick)
	natstest.Eventually(t, nick+" to be connected", func() bool {
		c.Send("NICK " + nick) // again while an earlier connection has it
		return c.Saw(" 001 ")
	})
	return c
}

// Close ends the connection without a QUIT.
func (c *Client) Close() { _ = c.conn.Close() }

// Send sends a line. What becomes of it, the server's lines tell.
func (c *Client) Send(line string) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(natstest.Patience))
	_, _ = c.conn.Write([]byte(line + "\r\n"))
}

// Join joins a channel and waits until somebody else is in it, too, if other is not empty.
func (c *Client) Join(channel, other string) {
	c.t.Helper()
	c.Send("JOIN " + channel)
	natstest.Eventually(c.t, c.Nick+" to be in "+channel, func() bool { return c.Saw(" 366 " + c.Nick + " " + channel) })
	if other == "" {
		return
	}
	natstest.Eventually(c.t, other+" to be in "+channel, func() bool {
		before := c.Count(" 366 ")
		c.Send("NAMES " + channel)
		natstest.Eventually(c.t, "the names", func() bool { return c.Count(" 366 ") > before })
		return c.has(channel, other)
	})
}

// has reports whether the latest list of names in a channel has a nickname.
func (c *Client) has(channel, nick string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.raw) - 1; i >= 0; i-- {
		if _, names, found := strings.Cut(c.raw[i], " "+channel+" :"); found && strings.Contains(c.raw[i], " 353 ") {
			for n := range strings.FieldsSeq(names) {
				if strings.TrimLeft(n, "@+") == nick {
					return true
				}
			}
			return false
		}
	}
	return false
}

// Say sends a message to a channel or a person.
func (c *Client) Say(to, text string) { c.Send("PRIVMSG " + to + " :" + text) }

// Saw reports whether any line contains a text.
func (c *Client) Saw(text string) bool { return c.Count(text) > 0 }

// Count returns how many lines contain a text.
func (c *Client) Count(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.raw {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

// Gone reports whether the connection has ended.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Lines returns the messages and notices that the person has seen.
func (c *Client) Lines() []Line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Line(nil), c.lines...)
}

func (c *Client) read() {
	in := bufio.NewReader(c.conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			c.mu.Lock()
			c.gone = true
			c.mu.Unlock()
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if token, found := strings.CutPrefix(line, "PING "); found {
			c.Send("PONG " + token)
			continue
		}
		c.mu.Lock()
		c.raw = append(c.raw, line)
		if f := strings.SplitN(line, " ", 4); len(f) == 4 && (f[1] == "PRIVMSG" || f[1] == "NOTICE") {
			from, _, _ := strings.Cut(strings.TrimPrefix(f[0], ":"), "!")
			c.lines = append(c.lines, Line{from, f[1], f[2], strings.TrimPrefix(f[3], ":")})
		}
		c.mu.Unlock()
	}
}

// Signal kills the server and does not wait.
func (s *Server) Signal() error { return s.cmd.Process.Kill() }
