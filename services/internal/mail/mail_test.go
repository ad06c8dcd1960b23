package mail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/mail"
)

func good() mail.AccountConfig {
	return mail.AccountConfig{
		Address: "a@example.org", Password: "env:MAIL_PASSWORD",
		IMAP: mail.ServerConfig{Host: "imap.example.org"}, SMTP: mail.ServerConfig{Host: "smtp.example.org"},
	}
}

func TestAnErrorNamesTheFieldAndTheFix(t *testing.T) {
	for want, change := range map[string]func(*mail.AccountConfig){
		"":                                 func(*mail.AccountConfig) {},
		"address is \"nobody\", want an":   func(a *mail.AccountConfig) { a.Address = "nobody" },
		"address is \"A <a@x.org>\"":       func(a *mail.AccountConfig) { a.Address = "A <a@x.org>" },
		"password is empty; set it to env": func(a *mail.AccountConfig) { a.Password = "" },
		"password must not be in the file": func(a *mail.AccountConfig) { a.Password = "hunter2" },
		"password and oauth2 are both set": func(a *mail.AccountConfig) { a.OAuth2 = &mail.OAuth2{} },
		"oauth2.token_url is \"http://x\", want an https URL": func(a *mail.AccountConfig) {
			a.Password, a.OAuth2 = "", &mail.OAuth2{TokenURL: "http://x", ClientID: "c", RefreshToken: "env:T"}
		},
		"oauth2.refresh_token must be env": func(a *mail.AccountConfig) {
			a.Password, a.OAuth2 = "", &mail.OAuth2{TokenURL: "https://x/t", ClientID: "c", RefreshToken: "t"}
		},
		"imap.host is \"\", want the name":                func(a *mail.AccountConfig) { a.IMAP.Host = "" },
		"smtp.host is \"smtp.example.org:25\"":            func(a *mail.AccountConfig) { a.SMTP.Host = "smtp.example.org:25" },
		"smtp.port is 70000, want 1":                      func(a *mail.AccountConfig) { a.SMTP.Port = 70000 },
		"imap.security is \"ssl\", want tls, starttls or": func(a *mail.AccountConfig) { a.IMAP.Security = "ssl" },
		"sent is \"never\", want copy, server or append":  func(a *mail.AccountConfig) { a.Sent = "never" },
		"name or user has a line break":                   func(a *mail.AccountConfig) { a.Name = "a\nb" },
	} {
		a := good()
		change(&a)
		err := mail.Config{Accounts: map[string]mail.AccountConfig{"work": a}}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "email.accounts.work."+want) {
			t.Errorf("%v, want %s", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Error("an error contains the password")
		}
	}
	if err := (mail.Config{Accounts: map[string]mail.AccountConfig{"a b": good()}}).Validate(); err == nil || !strings.Contains(err.Error(), "not a valid id") {
		t.Errorf("a name with a space: %v", err)
	}
}

func TestAFileIsCheckedWithItsSecrets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "skandha.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const account = "email:\n  accounts:\n    a:\n      address: a@x.org\n      password: file:DIR/secret\n      imap: {host: x}\n      smtp: {host: x}\n"
	write(strings.ReplaceAll(account, "DIR", dir))
	if err := mail.CheckFile(file); err == nil || !strings.Contains(err.Error(), ":5: email.accounts.a.password: open") {
		t.Errorf("without the secret: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mail.CheckFile(file); err != nil {
		t.Errorf("with the secret: %v", err)
	}
	write(strings.ReplaceAll(account, "DIR", dir) + "      ca_file: " + file + "\n")
	if err := mail.CheckFile(file); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("a CA file that is none: %v", err)
	}
	write("email:\n  accounts:\n    a: {adress: x}\n")
	if err := mail.CheckFile(file); err == nil || !strings.Contains(err.Error(), "did you mean address?") {
		t.Errorf("an unknown key: %v", err)
	}
	if accounts, err := mail.ReadAccounts(""); err != nil || len(accounts.Names()) != 0 {
		t.Errorf("without a file: %v, %v", accounts, err)
	}
}

func TestWhichAccountIsMeant(t *testing.T) {
	t.Setenv("MAIL_PASSWORD", "x")
	one, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"work": good()}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := one.Get(""); err != nil || a.ID != "work" || a.User != "a@example.org" || a.IMAP.Port != 993 || a.SMTP.Port != 465 ||
		a.Sent != mail.SentCopy {
		t.Errorf("the only one is %+v, %v", a, err)
	}
	two, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"work": good(), "home": good()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "other"} {
		if _, err := two.Get(name); err == nil || !strings.Contains(err.Error(), "want one of home, work") {
			t.Errorf("%q of two: %v", name, err)
		}
	}
}
