package email_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

const name subject.Writer = "post"

// timeout bounds the operations of the listeners under test.
const timeout = 3 * time.Second

// rig is a listener and what it has emitted.
type rig struct {
	*email.Listener
	stats *email.Stats
	gate  *listenertest.Gate
	bus   *journal.Journal
}

func account(t *testing.T, c mail.AccountConfig) *mail.Account {
	t.Helper()
	all, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"agent": c}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := all.Get("")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newBus(t *testing.T) *journal.Journal {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	return b
}

// start starts a listener. It accepts everybody unless cfg says otherwise.
func start(t *testing.T, b *journal.Journal, a mail.AccountConfig, cfg email.Config) *rig {
	t.Helper()
	if cfg.From == nil {
		cfg.From = []string{"*"}
	}
	r := &rig{stats: &email.Stats{}, bus: b}
	r.gate = listenertest.NewGate(emitter.New(b.Bus, name, &emitter.Stats{}, natstest.Logger(t)))
	l, err := email.New(name, cfg, email.Deps{Account: account(t, a), Bus: b, Logger: natstest.Logger(t), Stats: r.stats, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	r.Listener = l
	if err := l.OnStart(natstest.Context(t), r.gate); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // in haste
	_ = r.OnStop(ctx)
}

func (r *rig) await(t *testing.T) {
	t.Helper()
	natstest.Eventually(t, "mail is received", func() bool { return r.Ready() == nil })
}

// inputs waits until n inputs are acknowledged, and returns them in order.
func (r *rig) inputs(t *testing.T, n int) []contract.Input {
	t.Helper()
	natstest.Eventually(t, fmt.Sprintf("%d inputs", n), func() bool { return len(r.gate.Took()) >= n })
	took := r.gate.Took()
	if len(took) > n {
		t.Fatalf("%d inputs, want %d", len(took), n)
	}
	var out []contract.Input
	for _, in := range r.gate.Seen() {
		if slices.ContainsFunc(took, func(r contract.Receipt) bool { return r.ID == in.ID }) {
			out = append(out, in)
		}
	}
	return out
}

func write(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func simple(from, id, text string) string {
	return write("From: "+from, "Message-ID: <"+id+">", "Subject: about "+id, "", text)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	user := 0
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		natstest.EnsureStreams(t, b)
		user++
		me := mailtest.User(user)
		l, err := email.New(name, email.Config{Session: "conformance", From: []string{"*"}},
			email.Deps{Account: account(t, servers.Account(me)), Bus: b, Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{
			Listener: l, Keeps: true,
			Text: "E-mail from: alice@example.org\nSubject: x\nDate: 2026-03-03T10:00:00Z\nNote: the sender's address was not verified\n\nhello",
			Say: func(ctx context.Context, _, _ string) error {
				natstest.Eventually(t, "the listener has begun", func() bool { return l.Ready() == nil || ctx.Err() != nil })
				servers.Deliver(mailtest.Alice, me, write("From: alice@example.org", "Subject: x", "Date: Tue, 3 Mar 2026 10:00:00 +0000", "", "hello"))
				return nil
			},
		}
	})
}
