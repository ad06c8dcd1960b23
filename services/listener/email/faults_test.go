package email_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

func TestAConnectionThatDiesSilentlyIsReplaced(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	c, imap, _ := servers.Through(mailtest.Agent)
	r := start(t, b, c, email.Config{Poll: time.Second})
	r.await(t)
	imap.Freeze()
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "1@x", "one"))
	r.inputs(t, 1)
	if n := r.stats.Dials.Load(); n != 2 {
		t.Errorf("it has connected %d times, want once more", n)
	}
}

func TestWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	c, imap, _ := servers.Through(mailtest.Agent)
	r := start(t, b, c, email.Config{})
	r.await(t)
	imap.Refuse(true)
	imap.Cut()
	natstest.Eventually(t, "it is not ready", func() bool { return r.Ready() != nil })
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "1@x", "one"))
	imap.Refuse(false)
	r.inputs(t, 1)
	natstest.Eventually(t, "it is ready again", func() bool { return r.Ready() == nil })
}

// A letter disappears between the search and the fetch.
func TestALetterThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{})
	r.await(t)
	r.gate.Hold()
	for i, id := range []string{"1@x", "2@x", "3@x"} { // one by one, since letters overtake each other
		servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", id, id))
		servers.Await(mailtest.Agent, "", i+1)
	}
	natstest.Eventually(t, "the first is on its way", func() bool { return len(r.gate.Seen()) == 1 })
	servers.Change(mailtest.Agent, func(m *mailtest.Mailbox) { m.Move(2, "Elsewhere") })
	r.gate.Release()
	if in := r.inputs(t, 2); !strings.HasSuffix(in[1].Text, "3@x") {
		t.Errorf("the inputs are %+v", in)
	}
}

// asListener is set in the process that the kill test starts: the URL of the bus, and the account.
const asListener = "SKANDHA_TEST_EMAIL"

// TestMain makes the test binary a listener when the kill test runs it.
func TestMain(m *testing.M) {
	if url := os.Getenv(asListener); url != "" {
		fmt.Fprintln(os.Stderr, runListener(url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// runListener runs a listener until its process is killed; the error is why it cannot.
func runListener(url string) error {
	port, err := strconv.Atoi(os.Getenv("MAIL_PORT"))
	if err != nil {
		return err
	}
	dir := os.Getenv("MAIL_DIR")
	all, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"agent": {
		Address: mailtest.Agent, Password: "file:" + dir + "/password", CAFile: dir + "/ca.pem",
		IMAP: mail.ServerConfig{Host: "127.0.0.1", Port: port},
	}}})
	if err != nil {
		return err
	}
	a, err := all.Get("agent")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	b, err := journal.Connect(ctx, bus.Config{URL: url})
	if err != nil {
		return err
	}
	l, err := email.New(name, email.Config{
		From: []string{"*"}, Session: string(killed.Session), Start: email.StartAll, MoveTo: "Done",
	}, email.Deps{Account: a, Bus: b})
	if err != nil {
		return err
	}
	if err := l.OnStart(ctx, emitter.New(b.Bus, name, &emitter.Stats{}, slog.Default())); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestKill9(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	srv := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, srv)
	natstest.EnsureStreams(t, b)
	const letters, kills = 40, 8
	begin := func() *exec.Cmd { return listenerProcess(t, srv.ClientURL(), servers) }
	child := begin()
	stored := func() int { return len(listenertest.Log(t, b, killed)) }
	for n := range letters {
		servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", fmt.Sprintf("%d@x", n), fmt.Sprintf("letter %d.", n)))
		if n%(letters/kills) == letters/kills-1 { // somewhere in its work
			_ = child.Process.Kill()
			_ = child.Wait()
			child = begin()
		}
	}
	natstest.Eventually(t, "all are stored", func() bool { return stored() >= letters })
	servers.Await(mailtest.Agent, "Done", letters)
	seen := map[string]int{}
	for _, in := range listenertest.Log(t, b, killed) {
		_, text, _ := strings.Cut(in.Text, "\n\n")
		seen[text]++
	}
	for n := range letters {
		if seen[fmt.Sprintf("letter %d.", n)] != 1 {
			t.Errorf("letter %d was stored %d times", n, seen[fmt.Sprintf("letter %d.", n)])
		}
	}
	if len(seen) != letters || stored() != letters {
		t.Errorf("%d inputs, want %d", stored(), letters)
	}
}

var killed = subject.Ref{Agent: "main", Session: "killed"}

// listenerProcess runs a listener in a process.
func listenerProcess(t *testing.T, url string, servers *mailtest.Servers) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(natstest.Context(t), exe)
	a := servers.Account(mailtest.Agent)
	cmd.Env = append(os.Environ(), asListener+"="+url, "MAIL_PORT="+fmt.Sprint(a.IMAP.Port), "MAIL_DIR="+servers.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}
