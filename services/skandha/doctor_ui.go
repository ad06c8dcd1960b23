package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

// uiFinding reports the page's address, and where its owner's token is.
func (g *globals) uiFinding(ctx context.Context) finding {
	if g.running() {
		return g.runningUIFinding(ctx)
	}
	if g.UI == "off" {
		return finding{
			ok: true, what: "page: off", advice: "set --ui " + uibridge.DefaultListen + " (or SKANDHA_UI) to serve it",
		}
	}
	f := finding{need: true, what: "page"}
	cfg, err := system.UI{Listen: g.UI}.Flags(g.Config).Config()
	if err == nil {
		err = cfg.CheckTLS()
	}
	if err != nil {
		f.advice = err.Error()
		return f
	}
	asked := cfg.Listen != ""
	if !asked {
		cfg.Listen = uibridge.DefaultListen
	}
	scheme := "http://"
	if cfg.TLSCert != "" {
		scheme = "https://"
	}
	f.ok, f.what, f.advice = true, "page: "+scheme+cfg.Listen, g.ownerAdvice(cfg)
	if !hosts.ListensOnLoopback(cfg.Listen) && cfg.TLSCert == "" && !strings.HasPrefix(cfg.URL, "https://") {
		f.advice += "; other machines reach it without TLS; set ui.tls_cert and ui.tls_key, or use a TLS proxy and set ui.url"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	switch {
	case err == nil:
		_ = l.Close() // only checked that it is free
	case asked:
		f.ok, f.advice = false, err.Error()+"; choose another with --ui HOST:PORT"
	default:
		f.advice += "; the port is in use, so the next free one will be used"
	}
	return f
}

// ownerAdvice reports where the owner's token is kept.
func (g *globals) ownerAdvice(cfg uibridge.Config) string {
	out := "the owner's token is configured"
	if cfg.Owner == "" {
		file := filepath.Join(g.Data, access.TokenFile)
		out = "the owner's token is kept in " + file
		if !isFile(file) {
			out = "the owner's token will be created at the first start and kept in " + file
		}
	}
	if len(cfg.Tokens) > 0 {
		out += fmt.Sprintf("; other configured tokens: %d", len(cfg.Tokens))
	}
	return out
}

// runningUIFinding asks the running system for its page.
func (g *globals) runningUIFinding(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	f := finding{what: "page of the running system"}
	c, err := g.connectRunning(ctx)
	if err != nil {
		f.advice = err.Error()
		return f
	}
	defer c.close()
	st, err := c.pageStatus(ctx)
	switch {
	case errors.Is(err, system.ErrNoUI):
		f.what, f.advice = "page: the running system has none", "restart it with --ui "+uibridge.DefaultListen+
			", or start skandha-uibridge as well"
	case err != nil:
		f.advice = err.Error()
	default:
		f.ok, f.what, f.advice = true, "page: "+st.Page, "open it with the link that `skandha ui` prints"
	}
	return f
}
