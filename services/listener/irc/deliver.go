package irc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
)

const (
	readyWait = 10 * time.Second // for a connection
	whoisWait = 10 * time.Second
	// pongWait is for the server to handle the lines; servers slow down those that send much.
	pongWait = 25 * time.Second
)

// sending is a delivery whose lines are on their way.
type sending struct {
	target string
	lines  int
	lost   <-chan struct{} // closed when the connection has ended
	track  *track          // what was seen of the lines in the channel; nil: nothing watches
	done   chan struct{}   // closed with the PONG

	mu       sync.Mutex
	rejected int
	why      string
	part     string // why not all lines were sent; empty: they were
}

// reject counts a line that the server refused.
func (s *sending) reject(target, why string) {
	if fold(target) != fold(s.target) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected++
	s.why = why
}

// wait returns the result once it is known.
func (s *sending) wait(ctx context.Context) tool.Result {
	select {
	case <-s.done:
	default:
		select {
		case <-s.done:
		case <-s.lost:
			return s.track.result(ctx)
		case <-ctx.Done():
			return tool.Failure(tool.CodeOutcomeUnknown, "the server has not confirmed the lines in time")
		}
	}
	s.track.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.part != "":
		return tool.Failure(tool.CodeOutcomeUnknown, s.part)
	case s.rejected == 0:
		return tool.OK(map[string]any{"to": s.target, "lines": s.lines})
	case s.rejected >= s.lines:
		return tool.Failure(tool.CodeFailed, "the server refused the message: "+s.why)
	}
	return tool.Failure(tool.CodeOutcomeUnknown, fmt.Sprintf("the server refused %d of %d lines: %s", s.rejected, s.lines, s.why))
}

// Deliver implements [contract.Gateway].
func (g *Gateway) Deliver(ctx context.Context, m contract.Outgoing) tool.Result {
	g.sending.Lock()
	defer g.sending.Unlock()
	to, at, err := g.target(m.To)
	if err != nil {
		return chat.Permanent(err)
	}
	c, err := g.ready(ctx, at.Room)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	if at.Room == "" {
		if err := g.verify(ctx, c, to, at.Account); err != nil {
			return tool.Failure(tool.CodeFailed, err.Error())
		}
	}
	shown, err := g.Show(ctx, at, m)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	lines := chat.Lines(chat.Plain(shown.Text), c.room(to), g.cfg.MaxLines)
	if len(lines) == 0 {
		return chat.Permanent(errors.New("the message has no text"))
	}
	return g.send(ctx, c, to, lines, m)
}

// target reads where a message goes: a channel of the configuration, or NICK!IDENTITY.
func (g *Gateway) target(to string) (target string, at chat.Place, err error) {
	if room := fold(to); channelName.MatchString(room) {
		if _, ok := g.cfg.Rooms[room]; !ok {
			return "", at, fmt.Errorf("the channel %s is not in rooms of listener %s", to, g.Name())
		}
		return room, chat.Place{Room: room}, nil
	}
	nick, identity, found := strings.Cut(to, "!")
	identity = g.cfg.account(identity)
	switch {
	case !found && g.cfg.Identify != ByHost:
		identity = g.cfg.account(nick)
	case !found:
		return "", at, fmt.Errorf("%q names no person; want NICK!user@host", to)
	}
	if strings.ContainsAny(nick, " ,\r\n\x00:*") || nick == "" || !g.cfg.Direct {
		return "", at, fmt.Errorf("%q is neither a channel nor a person whom direct messages are for", to)
	}
	return nick, chat.Place{Account: identity}, nil
}

// send sends the lines and waits for the server to confirm that it has handled them.
func (g *Gateway) send(ctx context.Context, c *conn, to string, lines []string, m contract.Outgoing) tool.Result {
	if err := c.idle(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	if err := g.pace.Wait(ctx); err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	track, err := g.track(ctx, c, to, lines)
	if err != nil {
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	attempt := g.attempts.Open(m.Attempt)
	if err := m.Begin(ctx); err != nil {
		attempt.Forget()
		track.forget()
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	s := &sending{target: to, lines: len(lines), lost: c.lost, track: track, done: make(chan struct{})}
	g.sent.Add(m.Key+m.Attempt, s)
	if err := attempt.Pass(); err != nil {
		track.forget()
		return tool.Failure(tool.CodeFailed, err.Error())
	}
	token := rand.Text()
	c.expect(token, s)
	sent, err := g.lines(ctx, c, to, lines)
	if err != nil {
		s.mu.Lock()
		s.part = fmt.Sprintf("%d of %d lines were sent: %v", sent, len(lines), err)
		s.mu.Unlock()
	}
	_ = c.write("PING :%s", token) // a failure ends the connection
	ctx, cancel := context.WithTimeout(ctx, pongWait)
	defer cancel()
	r := s.wait(ctx)
	g.record(attempt, r)
	return r
}

// keptAttempts is how many records of delivered messages are kept, until their results are stored.
const keptAttempts = 16

// record records what became of an attempt, for a probe after a crash.
func (g *Gateway) record(a *effect.Attempt, r tool.Result) {
	switch {
	case r.Success:
		a.Done()
		if g.delivered = append(g.delivered, a); len(g.delivered) > keptAttempts {
			g.delivered[0].Forget()
			g.delivered = g.delivered[1:]
		}
	case r.Error.Code != tool.CodeOutcomeUnknown:
		a.Forget()
	}
}

func (g *Gateway) lines(ctx context.Context, c *conn, to string, lines []string) (sent int, err error) {
	for i, line := range lines {
		if i > 0 {
			if err := g.pace.Wait(ctx); err != nil {
				return i, err
			}
		}
		if err := c.write("PRIVMSG %s :%s", to, line); err != nil {
			return i, err
		}
	}
	return len(lines), nil
}

// Probe implements [contract.Gateway]. IRC servers keep no messages, so that it knows only what this
// process has seen, and what an earlier one has recorded on this machine.
func (g *Gateway) Probe(ctx context.Context, m contract.Outgoing, b tool.Begun) tool.Result {
	if s, ok := g.sent.Get(m.Key + b.Attempt); ok {
		return s.wait(ctx)
	}
	switch {
	case g.attempts.Close(b.Attempt):
		return tool.Failure(tool.CodeNotRun, "the gateway had ended before it sent the first line")
	case g.attempts.Done(b.Attempt):
		return tool.OK(map[string]any{"to": m.To})
	}
	return contract.NeverKnown(
		"the gateway has ended since, and an IRC server keeps no messages: look into " + text.Cut(m.To, 100))
}

// verify makes sure that a nickname belongs to a person.
func (g *Gateway) verify(ctx context.Context, c *conn, nick, identity string) error {
	if g.cfg.Identify == ByNick {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, whoisWait)
	defer cancel()
	w := &whois{nick: nick, done: make(chan struct{})}
	c.mu.Lock()
	c.whois = w
	c.mu.Unlock()
	if err := c.write("WHOIS %s", nick); err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-c.lost:
		return errors.New("the connection was lost")
	case <-ctx.Done():
		return fmt.Errorf("the server does not answer WHOIS %s", nick)
	}
	is := w.host
	if g.cfg.Identify == ByAccount {
		is = fold(w.account)
	}
	if is != identity || identity == "" {
		return fmt.Errorf("%s is not online as %s", identity, nick)
	}
	return nil
}

// idle waits until the server has confirmed the lines of the delivery before, whose errors could
// otherwise be taken for those of the next one.
func (c *conn) idle(ctx context.Context) error {
	c.mu.Lock()
	s := c.sending
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	select {
	case <-s.done:
		return nil
	case <-s.lost:
		return errors.New("the connection was lost")
	case <-ctx.Done():
		return errors.New("the server has not confirmed the message before")
	}
}

// check makes the server show that the connection works. A message that would leave on one that is
// lost already would have an unknown outcome.
func (c *conn) check(ctx context.Context) error {
	token, answered := rand.Text(), make(chan struct{})
	c.mu.Lock()
	c.alive[token] = answered
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.alive, token)
		c.mu.Unlock()
	}()
	if err := c.write("PING :%s", token); err != nil {
		return err
	}
	select {
	case <-answered:
		return nil
	case <-c.lost:
		return errors.New("the connection was lost")
	case <-ctx.Done():
		return errors.New("the server does not answer")
	}
}

// expect registers the lines that are about to be sent.
func (c *conn) expect(token string, s *sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending, c.token = s, token
}

// pong handles the server's answer to a PING.
func (c *conn) pong(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered := c.alive[token]; answered != nil {
		delete(c.alive, token)
		close(answered)
		return
	}
	if c.sending != nil && token == c.token {
		close(c.sending.done)
		c.sending = nil
	}
}

// fault handles the server's refusal of a line, or of a WHOIS.
func (c *conn) fault(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.whois; w != nil && fold(m.param(1)) == fold(w.nick) {
		c.whois = nil
		close(w.done)
		return
	}
	if c.sending != nil {
		c.sending.reject(m.param(1), m.command+" "+reason(m))
	}
}

// identity collects the answer to a WHOIS.
func (c *conn) identity(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.whois
	if w == nil || fold(m.param(1)) != fold(w.nick) {
		return
	}
	switch m.command {
	case "311": // nick, user, host
		w.host = m.param(2) + "@" + m.param(3)
	case "330": // nick, account
		w.account = m.param(2)
	case "318":
		c.whois = nil
		close(w.done)
	}
}
