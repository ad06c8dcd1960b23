package terminal

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/services/internal/follow"
)

// Run holds the conversation until the user leaves or ctx ends. It uses the terminal of
// in and out, and restores its state.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(cfg)
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(60))
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(ctx, p, cfg.Items)
	}()
	_, err := p.Run()
	stop()
	<-done
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && m.err == nil {
		err = nil
	}
	return errors.Join(m.err, err)
}

// forward sends the session's items to the program, as many at once as are available.
func forward(ctx context.Context, p *tea.Program, from <-chan follow.Item) {
	for {
		msg := gather(ctx, from)
		p.Send(msg)
		if _, over := msg.(closed); over {
			return
		}
	}
}

// maxGathered is how many items are forwarded at once.
const maxGathered = 256

// gather waits for an item, and returns it with all that are available.
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
				return all // the next call reports the end
			}
			all = append(all, i)
		default:
			return all
		}
	}
	return all
}
