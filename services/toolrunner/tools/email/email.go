package email

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
)

// Permissions of the tools. What a tool with a network permission returns counts as text from outside.
const (
	permissionNetwork = "network.email"
	permissionRead    = "email.read"
	permissionSend    = "email.send"
)

const readTimeout = 2 * time.Minute

// Artifacts holds the files that may be attached.
type Artifacts interface {
	GetArtifact(ctx context.Context, name string) ([]byte, error)
}

// Group is the tools of a process.
type Group struct {
	accounts  *mail.Accounts
	artifacts Artifacts
	attempts  effect.Attempts
	sender    *post.Sender
}

// New returns the tools for the accounts. How far attempts got is recorded in stateDir; see
// [effect.Attempts].
func New(accounts *mail.Accounts, artifacts Artifacts, stateDir string, log *slog.Logger) *Group {
	return &Group{
		accounts: accounts, artifacts: artifacts, attempts: effect.NewAttempts(stateDir, log), sender: post.NewSender(log),
	}
}

// Close ends the work in the background.
func (g *Group) Close() { g.sender.Close() }

// Tools returns the tools; none if there are no accounts.
func (g *Group) Tools() []tools.Tool {
	if len(g.accounts.Names()) == 0 {
		return nil
	}
	return []tools.Tool{g.send(), g.read(), g.search(), g.sync()}
}

// which describes the argument account.
func (g *Group) which() string {
	names := g.accounts.Names()
	described := make([]string, len(names))
	for i, n := range names {
		a, _ := g.accounts.Get(n) // it is one of them
		described[i] = fmt.Sprintf("%s (%s)", n, a.Address)
	}
	return fmt.Sprintf(`"account":{"type":"string","description":%q}`,
		"one of "+strings.Join(described, ", ")+"; may be left out if there is one")
}

const whichFolder = `"folder":{"type":"string","minLength":1,"maxLength":500,"default":"INBOX"}`

// open opens a folder for reading.
func (g *Group) open(ctx context.Context, account, folder string) (*mail.Account, *mailstore.Store, mailstore.State, error) {
	a, err := g.accounts.Get(account)
	if err != nil {
		return nil, nil, mailstore.State{}, err
	}
	b, err := mailstore.Open(ctx, a)
	if err != nil {
		return nil, nil, mailstore.State{}, err
	}
	s, err := b.Select(folder, true)
	if err == nil {
		return a, b, s, nil
	}
	if errors.Is(err, mailstore.ErrNoFolder) {
		if names, listed := b.Folders(); listed == nil {
			err = fmt.Errorf("%w; the folders are %s", err, strings.Join(names, ", "))
		}
	}
	b.Close()
	return nil, nil, s, err
}

// summary describes a letter in a list.
type summary struct {
	UID       uint32   `json:"uid"`
	MessageID string   `json:"message_id,omitempty"`
	From      []string `json:"from"`
	To        []string `json:"to,omitempty"`
	Subject   string   `json:"subject"`
	Received  string   `json:"received,omitempty"`
	Bytes     int64    `json:"bytes"`
	Flags     []string `json:"flags,omitempty"`
}

// failure returns the result of a call that could not read or send.
func failure(doing string, err error) tool.Result {
	return tools.Fail(fmt.Errorf("%s: %w", doing, err))
}

// shown returns the attachment as a file that models can look at; false if it is none.
func shown(prefix string, f letter.File) (provider.File, bool) {
	if result.ShownAs(f.Content[:min(len(f.Content), result.Sniffed)]) == "" {
		return provider.File{}, false
	}
	file, err := result.Shown(prefix, f.Name, f.Content)
	return file, err == nil
}
