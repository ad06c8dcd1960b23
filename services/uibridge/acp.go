package uibridge

import (
	"context"
	"io"
	"log/slog"
	"os"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/compat/acp"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// Editor is an editor that speaks ACP with this process.
type Editor struct {
	Agent    subject.Agent // that it talks to
	Version  string
	Commands []EditorCommand
	// Open connects to the system, when the editor asks for that. The connection is the caller's.
	Open func(context.Context) (EditorSystem, error)
	Log  *slog.Logger
}

// EditorCommand is a slash command that the editor offers.
type EditorCommand = acp.Command

// EditorSystem is a connection to a system, for an editor.
type EditorSystem struct {
	Bus    *journal.Journal
	Writer subject.Writer // whose inputs and answers the editor's are
	// Workspace is where the file tools work, if it is on this machine and known.
	Workspace string
}

// ServeEditor serves the editor until the input or ctx ends. It follows the editor's sessions as
// the bridge follows those of its clients, on the connection that it is given.
func ServeEditor(ctx context.Context, e Editor, in io.Reader, out io.Writer) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	var b *backend.Backend
	defer func() {
		if b != nil {
			b.Close()
		}
	}()
	return acp.Serve(ctx, acp.Options{
		Agent: e.Agent, Version: e.Version, Commands: e.Commands, Log: e.Log,
		Open: func(ctx context.Context) (acp.System, error) {
			sys, err := e.Open(ctx)
			if err != nil {
				return acp.System{}, err
			}
			if b, err = backend.New(backend.Config{}, backend.Deps{Bus: sys.Bus, Log: e.Log}); err != nil {
				return acp.System{}, err
			}
			b.Add(inspect.Methods(inspect.Deps{Client: b.Client(), Log: e.Log})...)
			return acp.System{
				Backend: b, Store: sys.Bus.PutArtifact, Workspace: sys.Workspace,
				Principal: contract.Principal{
					Name: string(sys.Writer), Writer: sys.Writer,
					Rights: []contract.Right{contract.See, contract.Talk, contract.Approve},
				},
			}, nil
		},
	}, dir, in, out)
}
