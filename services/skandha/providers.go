package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	service "skandha.dev/services/provider"
)

// providersCmd shows the language models.
type providersCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (p *providersCmd) Run(ctx context.Context, g *globals) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	reports, err := c.Providers(ctx)
	if err != nil {
		return err
	}
	if p.JSON {
		return printJSON(os.Stdout, reports, true)
	}
	return printProviders(os.Stdout, reports)
}

// printProviders lists the providers of each process, with its faults and models below.
func printProviders(out io.Writer, reports []providerapi.Report) error {
	if len(reports) == 0 {
		_, err := fmt.Fprintln(out, "No provider is running: start one with skandha up, or skandha-provider.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PROVIDER\tMODEL\tSTATE\tPRICE IN/OUT\tPROCESS\tNOTE")
	var remarks []string
	for _, r := range reports {
		for _, p := range r.Providers {
			note := line(p.Note, 60)
			if p.Plugin != "" {
				note = strings.TrimSpace("plugin " + string(p.Plugin) + " " + note)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", line(p.Name, 40), line(p.Model, 60), reachability(p.Reachable, p.Breaker), price(p.Price),
				r.Instance, orElse(note, "–"))
			remarks = append(remarks, remarksOn(p)...)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range slices.Concat(remarks, embedderLines(reports), voiceLines(reports)) {
		_, _ = fmt.Fprintln(out, r)
	}
	if b := reports[0].Budget; b != nil {
		_, _ = fmt.Fprintln(out, budgetLine(*b))
	}
	_, err := fmt.Fprintln(out, "Prices are in US dollars per million tokens. /provider NAME chooses one for a session.")
	return err
}

// embedderLines describes what computes embeddings in each process.
func embedderLines(reports []providerapi.Report) (out []string) {
	for _, r := range reports {
		e := r.Embedder
		if e == nil {
			continue
		}
		what := fmt.Sprintf("Embedder of %s: %s %s, %s, price %s", r.Instance, line(e.Model, 100), line(e.Note, 60),
			reachability(e.Reachable, &e.Breaker), price(e.Price))
		if u := e.Usage; u != nil {
			what += fmt.Sprintf(", %d tokens since its start, which cost %s", u.InputTokens, u.Cost())
		}
		out = append(out, what+".")
		if e.Error != "" {
			out = append(out, "Embedder of "+string(r.Instance)+": "+line(e.Error, 300))
		}
	}
	if len(out) == 0 {
		out = append(out, "Embedder: none, so searches are lexical. "+service.EmbedderHint+".")
	}
	return out
}

// voiceLines describes what turns speech into text, and text into speech, in each process.
func voiceLines(reports []providerapi.Report) (out []string) {
	for _, v := range []struct {
		what, none string
		of         func(providerapi.Report) *providerapi.SpeechModel
	}{
		{"Transcriber", service.TranscriberHint, func(r providerapi.Report) *providerapi.SpeechModel { return r.Transcriber }},
		{"Speaker", service.SpeakerHint, func(r providerapi.Report) *providerapi.SpeechModel { return r.Speaker }},
	} {
		found := false
		for _, r := range reports {
			m := v.of(r)
			if m == nil {
				continue
			}
			found = true
			out = append(out, fmt.Sprintf("%s of %s: %s %s, %s.", v.what, r.Instance, line(m.Model, 100), line(m.Note, 60),
				reachability(m.Reachable, &m.Breaker)))
			if m.Error != "" {
				out = append(out, fmt.Sprintf("%s of %s: %s", v.what, r.Instance, line(m.Error, 300)))
			}
		}
		if !found {
			out = append(out, v.what+": none. "+v.none+".")
		}
	}
	return out
}

// reachability says whether a provider, an embedder, a transcriber or a speaker can be asked now.
func reachability(reachable *bool, b *providerapi.Breaker) string {
	var s []string
	switch {
	case reachable == nil:
		s = append(s, "offered")
	case *reachable:
		s = append(s, "reachable")
	default:
		s = append(s, "not reachable")
	}
	if b != nil && b.State != providerapi.Closed {
		s = append(s, "breaker "+strings.ReplaceAll(string(b.State), "_", " "))
	}
	return strings.Join(s, ", ")
}

func price(p *providerapi.Price) string {
	switch {
	case p == nil:
		return "unknown"
	case p.Input == 0 && p.Output == 0:
		return "free"
	}
	return fmt.Sprintf("%g/%g", p.Input, p.Output)
}

// shownModels is how many of a provider's models are listed.
const shownModels = 20

func remarksOn(p providerapi.Provider) (out []string) {
	name := line(p.Name, 40)
	if p.Error != "" {
		out = append(out, name+": "+line(p.Error, 300))
	}
	if b := p.Breaker; b != nil && b.Reason != "" && b.Reason != p.Error {
		retry := time.Duration(b.RetryInMS) * time.Millisecond
		out = append(out, fmt.Sprintf("%s: the breaker tries again in %s: %s", name, short(retry), line(b.Reason, 300)))
	}
	if n := len(p.Models); n > 0 {
		names := line(strings.Join(p.Models[:min(n, shownModels)], ", "), 2000)
		if n > shownModels {
			names += fmt.Sprintf(", and %d more (--json lists them)", n-shownModels)
		}
		out = append(out, name+" has the models "+names)
	}
	return out
}

func budgetLine(b providerapi.Budget) string {
	spent := "an unknown amount"
	if b.SpentMicroUSD != nil {
		spent = provider.USD(*b.SpentMicroUSD)
	}
	return fmt.Sprintf("Budget: %s of %s per %s are spent, answers in progress counted with their worst case.", spent,
		provider.USD(b.LimitMicroUSD), b.Per)
}
