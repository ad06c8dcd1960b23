package mailtest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/test/natstest"
)

// The domain of all users, and their password.
const (
	Domain   = "example.org"
	Password = "mailtest-secret"
	Token    = "mailtest-token" // of OAuth2, for the user Agent, if Options.OAuth is set
)

// The users. Each may log in and receives mail.
const (
	Agent = "agent@" + Domain
	Alice = "alice@" + Domain
	Bob   = "bob@" + Domain
	// Grey is refused for now (450) by Postfix.
	Grey = "grey@" + Domain
)

// User returns the address of one of the 20 other users.
func User(n int) string { return fmt.Sprintf("user-%d@%s", n%others, Domain) }

const others = 20

// Servers are a running Postfix and Dovecot.
type Servers struct {
	Dir    string
	CAFile string

	tb                         testing.TB
	imaps, imap                int // ports of Dovecot
	smtp, smtps, submission    int // ports of Postfix
	killPostfix, killDovecot   func()
	startPostfix, startDovecot func()
}

// Need finds the programs. Without them, or without the rights that Postfix needs, it skips the
// test, or fails it if the environment says SKANDHA_REQUIRE=all.
func Need(tb testing.TB) {
	tb.Helper()
	missing := ""
	for _, program := range []string{"/usr/sbin/dovecot", "/usr/sbin/postfix"} {
		if _, err := os.Stat(program); err != nil {
			missing = "NOT TESTED: " + program + " is not installed"
		}
	}
	if _, err := os.Stat("/usr/lib/dovecot/imap"); err != nil {
		missing = "NOT TESTED: dovecot-imapd is not installed"
	}
	if missing == "" && os.Getuid() != 0 {
		missing = "NOT TESTED: Postfix can be started by root only"
	}
	if missing == "" {
		return
	}
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}

// Start runs the servers until the test ends.
func Start(tb testing.TB) *Servers {
	tb.Helper()
	Need(tb)
	dir, err := os.MkdirTemp("", "mailtest") // the servers' own users must reach it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Servers{
		Dir: dir, tb: tb, CAFile: filepath.Join(dir, "ca.pem"),
		imaps: natstest.FreePort(tb), imap: natstest.FreePort(tb),
		smtp: natstest.FreePort(tb), smtps: natstest.FreePort(tb), submission: natstest.FreePort(tb),
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // see above
		tb.Fatal(err)
	}
	s.certificates()
	s.configureDovecot()
	s.configurePostfix()
	s.startDovecot = func() {
		s.killDovecot = s.run([]int{s.imaps, s.imap}, "dovecot.log", "/usr/sbin/dovecot", "-F", "-c", filepath.Join(dir, "dovecot.conf"))
	}
	s.startPostfix = func() {
		s.killPostfix = s.run([]int{s.smtp, s.smtps, s.submission}, "postfix.log",
			"/usr/lib/postfix/sbin/master", "-c", filepath.Join(dir, "postfix"), "-d")
	}
	s.startDovecot()
	s.startPostfix()
	tb.Cleanup(func() { s.killPostfix(); s.killDovecot() })
	return s
}

// RestartDovecot kills Dovecot with SIGKILL and starts it again.
func (s *Servers) RestartDovecot() { s.killDovecot(); s.startDovecot() }

// RestartPostfix kills Postfix with SIGKILL and starts it again.
func (s *Servers) RestartPostfix() { s.killPostfix(); s.startPostfix() }

// KillDovecot kills Dovecot; the function starts it again.
func (s *Servers) KillDovecot() (start func()) { s.killDovecot(); return s.startDovecot }

// run starts a server and waits until it listens. It runs in a separate process group, which is killed
// as a whole.
func (s *Servers) run(ports []int, log, program string, args ...string) (kill func()) {
	s.tb.Helper()
	out, err := os.OpenFile(filepath.Join(s.Dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // of the servers
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd := exec.Command(program, args...) //nolint:noctx // ends by its process id
	cmd.Stdout, cmd.Stderr = out, out
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	_ = out.Close() // the child has it
	kill = func() {
		killGroup(cmd)
		_ = cmd.Wait()
		for _, p := range ports { // its other processes listen a moment longer
			_ = dialed(context.Background(), p, false) // the next start says so if it is never free
		}
	}
	for _, p := range ports {
		if err := dialed(s.tb.Context(), p, true); err != nil {
			kill()
			text, _ := os.ReadFile(filepath.Join(s.Dir, log))
			s.tb.Fatalf("mailtest: %s does not listen on port %d: %v\n%s", program, p, err, text)
		}
	}
	return kill
}

// dialed waits until something listens on a port, or nothing does.
func dialed(ctx context.Context, port int, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, natstest.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) == want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return cmp.Or(err, ctx.Err())
		}
	}
}

func (s *Servers) write(name, text string) {
	s.tb.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for the servers' users
		s.tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // likewise
		s.tb.Fatal(err)
	}
}

// Account returns the configuration of a user's account, whose password is in a file.
func (s *Servers) Account(user string) mail.AccountConfig {
	return mail.AccountConfig{
		Address: user, Name: strings.ToUpper(user[:1]) + user[1:strings.IndexByte(user, '@')],
		Password: "file:" + filepath.Join(s.Dir, "password"), CAFile: s.CAFile,
		IMAP: mail.ServerConfig{Host: "127.0.0.1", Port: s.imaps},
		SMTP: mail.ServerConfig{Host: "127.0.0.1", Port: s.smtps},
	}
}

// StartTLS returns the configuration of an account that secures its connections by STARTTLS.
func (s *Servers) StartTLS(user string) mail.AccountConfig {
	a := s.Account(user)
	a.IMAP = mail.ServerConfig{Host: "127.0.0.1", Port: s.imap, Security: mail.StartTLS}
	a.SMTP = mail.ServerConfig{Host: "127.0.0.1", Port: s.submission, Security: mail.StartTLS}
	return a
}

// Through returns the configuration of an account whose connections are not encrypted and go
// through proxies.
func (s *Servers) Through(user string) (a mail.AccountConfig, imap, smtp *Proxy) {
	s.tb.Helper()
	imap, smtp = NewProxy(s.tb, s.imap), NewProxy(s.tb, s.submission)
	a = s.Account(user)
	a.IMAP = mail.ServerConfig{Host: "127.0.0.1", Port: imap.Port, Security: mail.None}
	a.SMTP = mail.ServerConfig{Host: "127.0.0.1", Port: smtp.Port, Security: mail.None}
	return a, imap, smtp
}

// Deliver sends a letter to a user as another server would: by plain SMTP, without login.
func (s *Servers) Deliver(from, to, letter string) {
	s.tb.Helper()
	letter = strings.ReplaceAll(strings.ReplaceAll(letter, "\r\n", "\n"), "\n", "\r\n")
	if err := smtp.SendMail(fmt.Sprintf("127.0.0.1:%d", s.smtp), nil, from, []string{to}, []byte(letter)); err != nil {
		s.tb.Fatalf("mailtest: delivering a letter to %s: %v", to, err)
	}
}

// SMTPAddress returns where Postfix accepts mail for its users without login.
func (s *Servers) SMTPAddress() string { return fmt.Sprintf("127.0.0.1:%d", s.smtp) }

// Letters returns the letters of a user that lie in a folder on the disk; "" is the inbox.
func (s *Servers) Letters(user, folder string) (letters []string) {
	s.tb.Helper()
	dir := filepath.Join(s.Dir, "mail", user, "Maildir")
	if folder != "" {
		dir = filepath.Join(dir, "."+folder)
	}
	for _, sub := range []string{"new", "cur"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !os.IsNotExist(err) {
			s.tb.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, sub, e.Name()))
			if err == nil { // else it was moved meanwhile
				letters = append(letters, string(b))
			}
		}
	}
	return letters
}

// Await waits until a user has at least n letters in a folder, and returns them.
func (s *Servers) Await(user, folder string, n int) []string {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), natstest.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		letters := s.Letters(user, folder)
		if len(letters) >= n {
			return letters
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := os.ReadFile(filepath.Join(s.Dir, "maillog"))
			s.tb.Fatalf("mailtest: %s has %d letters in %q, want %d; the log of Postfix:\n%s", user, len(letters), folder, n, text)
		}
	}
}
