package post_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/mail"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	config "skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

// asSender is set in the processes that the kill test starts: the key of the call.
const asSender = "SKANDHA_TEST_SEND"

// TestMain makes the test binary a sender when the kill test runs it.
func TestMain(m *testing.M) {
	if key := os.Getenv(asSender); key != "" {
		fmt.Println("done", send(key))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// send sends one letter, and prints how far it got.
func send(key string) error {
	port, err := strconv.Atoi(os.Getenv("MAIL_PORT"))
	if err != nil {
		return err
	}
	dir := os.Getenv("MAIL_DIR")
	all, err := config.Open(config.Config{Accounts: map[string]config.AccountConfig{"a": {
		Address: mailtest.Agent, Password: "file:" + dir + "/password", CAFile: dir + "/ca.pem",
		SMTP: config.ServerConfig{Host: "127.0.0.1", Port: port},
		IMAP: config.ServerConfig{Host: "127.0.0.1", Port: 1},
	}}})
	if err != nil {
		return err
	}
	a, err := all.Get("a")
	if err != nil {
		return err
	}
	l, err := post.Compose(a, key, post.Draft{To: []string{mailtest.Alice}, Text: key, Kind: post.Generated}, time.Now())
	if err != nil {
		return err
	}
	fmt.Println("sending")
	_, err = post.NewSender(nil).Send(context.Background(), a, l, func(context.Context) error {
		_, err := fmt.Println("begun")
		return err
	})
	return err
}

// Senders are killed at any moment. What arrives is counted in the recipient's mailbox.
func TestKill9(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	a, s := open(t, servers.Account(mailtest.Agent)), sender(t)
	kills := 40
	if n, err := strconv.Atoi(os.Getenv("SKANDHA_STORM")); err == nil {
		kills = n
	}
	claimed := map[string]bool{} // by key: whether it was sent, as far as that is known
	unknown, resolved := 0, 0
	for n := range kills {
		key := fmt.Sprintf("key-%d", n)
		begun, done := killed(t, servers, key, n)
		switch {
		case done != "":
			claimed[key] = done == "done <nil>"
			continue
		case !begun:
			claimed[key] = false // it certainly was not
			continue
		}
		unknown++
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Probe(ctx, a, key, "")
		cancel()
		switch {
		case err == nil:
			claimed[key] = true
			resolved++
		case !errors.Is(err, post.ErrNotFound):
			t.Errorf("the probe of %s: %v", key, err)
		}
	}
	sent := 0
	for _, yes := range claimed {
		if yes {
			sent++
		}
	}
	arrived := map[string]int{}
	for _, l := range servers.Await(mailtest.Alice, "", sent) {
		m, err := mail.ReadMessage(strings.NewReader(l))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(m.Body)
		arrived[strings.TrimSpace(string(body))]++
		if !letter.Ours(strings.Trim(m.Header.Get("Message-Id"), "<>"), mailtest.Agent) {
			t.Errorf("a foreign letter: %s", l)
		}
	}
	for key, n := range arrived {
		if yes, known := claimed[key]; n != 1 || known && !yes {
			t.Errorf("%s arrived %d times; claimed: sent %t, known %t", key, n, yes, known)
		}
	}
	for key, yes := range claimed {
		if yes && arrived[key] != 1 {
			t.Errorf("%s is said to be sent, and arrived %d times", key, arrived[key])
		}
	}
	// Without a record of attempts, one that dies before the last line stays unknown; see the tests of
	// the whole system for those with one.
	t.Logf("%d kills: %d sent, %d outcomes unknown, of which %d were resolved", kills, sent, unknown, resolved)
}

// killed runs a sender and kills it. It reports how far the sender said it got.
func killed(t *testing.T, servers *mailtest.Servers, key string, n int) (begun bool, done string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(natstest.Context(t), exe)
	cmd.Env = append(os.Environ(), asSender+"="+key, "MAIL_PORT="+fmt.Sprint(servers.Account(mailtest.Agent).SMTP.Port), "MAIL_DIR="+servers.Dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Most kills hit the time between begin and the confirmation, in which the outcome is unknown.
	from, within := "begun", 5*time.Millisecond
	switch n % 8 {
	case 0, 4:
		from, within = "sending", 60*time.Millisecond
	case 1:
		within = 1 // at once
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		begun = begun || line == "begun"
		if strings.HasPrefix(line, "done") {
			done = line
		}
		if line == from {
			time.AfterFunc(rand.N(within), func() { _ = cmd.Process.Kill() }) //nolint:gosec // a moment, not a secret
		}
	}
	_ = cmd.Wait()
	return begun, done
}
