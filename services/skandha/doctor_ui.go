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

// uiFinding says where the page is, or would be, and who may open it.
func (g *globals) uiFinding(ctx context.Context) finding {
	if g.running() {
		return g.runningUIFinding(ctx)
	}
	if g.UI == "off" {
		return finding{ok: true, what: "page: off", advice: "--ui " + uibridge.DefaultListen + " (or SKANDHA_UI) serves it"}
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
		f.advice += "; other machines reach it without TLS: set ui.tls_cert and ui.tls_key, or a proxy before it and ui.url"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	switch {
	case err == nil:
		_ = l.Close() // it was a try
	case asked:
		f.ok, f.advice = false, err.Error()+"; choose another with --ui HOST:PORT"
	default:
		f.advice += "; the port is taken, so it will be at the next free one"
	}
	return f
}

// ownerAdvice says where the owner's token comes from.
func (g *globals) ownerAdvice(cfg uibridge.Config) string {
	out := "its owner's token is configured"
	if cfg.Owner == "" {
		file := filepath.Join(g.Data, access.TokenFile)
		out = "its owner's token is kept in " + file
		if !isFile(file) {
			out = "its owner's token will be made at the first start, and kept in " + file
		}
	}
	if len(cfg.Tokens) > 0 {
		out += fmt.Sprintf("; tokens of others that are configured: %d", len(cfg.Tokens))
	}
	return out
}

// runningUIFinding asks the system that runs.
func (g *globals) runningUIFinding(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	f := finding{what: "page of the system that runs"}
	c, err := g.connectRunning(ctx)
	if err != nil {
		f.advice = err.Error()
		return f
	}
	defer c.close()
	st, err := c.pageStatus(ctx)
	switch {
	case errors.Is(err, system.ErrNoUI):
		f.what, f.advice = "page: the system that runs has none", "restart it with --ui "+uibridge.DefaultListen+", or run skandha-uibridge beside it"
	case err != nil:
		f.advice = err.Error()
	default:
		f.ok, f.what, f.advice = true, "page: "+st.Page, "`skandha ui` prints a link that opens it"
	}
	return f
}
