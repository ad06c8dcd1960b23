package terminal

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/services/internal/follow"
)

// Run holds the conversation until the person leaves, or ctx ends. The terminal is
// in's and out's, and is given back as it was.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(cfg)
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(60))
	done := make(chan struct{})
	go func() {
		defer close(done)
		hear(ctx, p, cfg.Items)
	}()
	_, err := p.Run()
	stop()
	<-done
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && m.err == nil {
		err = nil
	}
	return errors.Join(m.err, err)
}

// hear passes on what happens, as much at once as is there.
func hear(ctx context.Context, p *tea.Program, from <-chan follow.Item) {
	for {
		msg := gather(ctx, from)
		p.Send(msg)
		if _, over := msg.(closed); over {
			return
		}
	}
}

// maxGathered is how much is taken in at once.
const maxGathered = 256

// gather waits for what happens, and takes what is there.
func gather(ctx context.Context, from <-chan follow.Item) tea.Msg {
	var all items
	select {
	case i, ok := <-from:
		if !ok {
			return closed{}
		}
		all = append(all, i)
	case <-ctx.Done():
		return closed{}
	}
	for len(all) < maxGathered {
		select {
		case i, ok := <-from:
			if !ok {
				return all // the next call says that it is over
			}
			all = append(all, i)
		default:
			return all
		}
	}
	return all
}
