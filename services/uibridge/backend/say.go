package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/uibridge/contract"
)

// Limits of a request's fields other than the text, in bytes.
const (
	maxSourceBytes = 64
	maxReasonBytes = 4 << 10
	maxArgs        = 64 // number of a slash command's arguments
	maxGrantBytes  = 64 << 10
)

// commandsOfAllAgents are the slash commands whose answers concern all agents, like the
// methods listPlugins and getHooks.
var commandsOfAllAgents = []string{"plugins", "metrics"}

// Submit implements contract.Backend.
func (b *Backend) Submit(ctx context.Context, p contract.Principal, in contract.Submission) (contract.Receipt, error) {
	if err := p.Require(contract.Talk, in.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	if err := b.checkRef(ctx, in.Ref); err != nil {
		return contract.Receipt{}, err
	}
	if err := checkSubmission(in); err != nil {
		return contract.Receipt{}, err
	}
	if in.ID == "" {
		in.ID = submit.NewID()
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	c, r := b.client.As(p.Writer), receipt(in.Ref)
	r.ID = in.ID
	var err error
	say, cmd := client.Typed(in.Text)
	if cmd != nil {
		if len(cmd.Args) > maxArgs {
			return contract.Receipt{}, contract.Invalid("input", fmt.Sprintf(
				"the command has %d arguments; the limit is %d", len(cmd.Args), maxArgs))
		}
		if slices.Contains(commandsOfAllAgents, strings.ToLower(strings.Trim(cmd.Name, "/"))) {
			if err := p.Everywhere(contract.See); err != nil {
				return contract.Receipt{}, err
			}
		}
		cmd.ID = in.ID
		r.Sequence, err = c.Run(ctx, in.Ref, *cmd)
		return r, b.refusal("storing a command", err)
	}
	r.Sequence, err = c.Say(ctx, in.Ref, event.Input{Text: say, ID: in.ID, Source: in.Source, Mode: in.Mode, Files: in.Files})
	if err == nil {
		r.Turn = event.TurnID(r.Sequence)
	}
	return r, b.refusal("storing an input", err)
}

func receipt(ref subject.Ref) contract.Receipt {
	return contract.Receipt{Agent: ref.Agent, Session: ref.Session}
}

func checkSubmission(in contract.Submission) error {
	switch {
	case strings.TrimSpace(in.Text) == "":
		return contract.Invalid("input", "empty; send some text")
	case len(in.Text) > event.MaxTextBytes:
		return tooLarge("input", len(in.Text), event.MaxTextBytes)
	case !in.Mode.Known():
		return contract.Invalid("mode", fmt.Sprintf("is %q, want one of %q", in.Mode, event.InputModes()))
	}
	return first(
		checkFiles(in),
		checkText("input", in.Text, event.MaxTextBytes),
		checkText("id", in.ID, event.MaxInputIDBytes),
		checkText("source", in.Source, maxSourceBytes),
	)
}

// checkFiles checks the descriptions of files: they must be artifacts of the session.
func checkFiles(in contract.Submission) error {
	if n := len(in.Files); n > event.MaxInputFiles {
		return contract.Invalid("files", fmt.Sprintf("%d files; the limit is %d", n, event.MaxInputFiles))
	}
	for i, f := range in.Files {
		if err := f.Check(); err != nil {
			return contract.Invalid(fmt.Sprintf("files[%d]", i), err.Error())
		}
		if !f.In(in.Ref) {
			return contract.Invalid(fmt.Sprintf("files[%d].ref", i), "want an artifact of this session: "+in.Ref.String()+"/<name>")
		}
	}
	return nil
}

// checkText checks a text's length and encoding.
func checkText(field, text string, most int) error {
	switch {
	case len(text) > most:
		return tooLarge(field, len(text), most)
	case !utf8.ValidString(text):
		return contract.Invalid(field, "not valid UTF-8")
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
