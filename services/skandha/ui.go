package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

// uiCmd prints a link to the page of a running system.
type uiCmd struct {
	Open bool `short:"o" help:"Open it in the browser."`
}

// Run implements the command.
func (u *uiCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	link, err := c.page(ctx)
	if err != nil {
		return err
	}
	fmt.Println(link.URL)
	fmt.Fprintf(os.Stderr, "the link works once, within %d minutes; the browser then stays logged in\n",
		int(time.Until(link.Expires).Round(time.Minute)/time.Minute))
	if file := filepath.Join(g.Data, access.TokenFile); g.NATS == "" && isFile(file) {
		fmt.Fprintf(os.Stderr, "the owner's token, for programs and other browsers, is in %s\n", file)
	}
	if !u.Open {
		return nil
	}
	return g.openInBrowser(ctx, link)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// openers are the programs that open a file with its default application, by operating
// system.
var openers = map[string][]string{
	"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}, "linux": {"xdg-open"},
}

// openInBrowser opens the link through a file that only this user can read: all users
// of a machine can see a program's arguments.
func (g *globals) openInBrowser(ctx context.Context, link uibridge.Link) error {
	file, err := filepath.Abs(filepath.Join(g.Data, "ui-open.html"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.Data, 0o700); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf("<!doctype html><meta charset=utf-8><title>Skandha</title><meta http-equiv=refresh "+
		"content=\"0;url=%s\">\n", html.EscapeString(link.URL))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	with := openers[runtime.GOOS]
	if with == nil {
		with = openers["linux"]
	}
	if out, err := exec.CommandContext(ctx, with[0], append(with[1:], file)...).CombinedOutput(); err != nil {
		return fmt.Errorf("opening the page with %s: %w %s; open the link yourself", with[0], err, clean(string(out)))
	}
	return nil
}
