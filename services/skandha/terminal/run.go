package terminal

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"skandha.dev/services/internal/follow"
)

// How long the program has to print what is left when ctx has ended, and how long to give the terminal back. A
// terminal may be gone, or not take what is written to it.
const (
	printWithin   = time.Second
	restoreWithin = time.Second
)

// Run holds the conversation until the user leaves, ctx ends or the terminal is lost, for which it returns nil. It uses
// the terminal of in and out, and restores its state.
func Run(ctx context.Context, cfg Config, in, out *os.File) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	before, _ := term.GetState(int(in.Fd())) // an error is that of raw mode, too
	m := newModel(cfg)
	p := tea.NewProgram(m, tea.WithInput(watched{in, stop}), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(60))
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forward(ctx, p, cfg.Items)
	}()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run()
		ended <- err
	}()
	over, err := false, error(nil)
	select {
	case err = <-ended:
		over = true
	case <-ctx.Done():
		if over, err = await(ended, printWithin); !over {
			go p.Kill()
			over, err = await(ended, restoreWithin)
		}
	}
	stop()
	if !over { // it hangs in a write to the terminal
		if before != nil {
			_ = term.Restore(int(in.Fd()), before) // it may be gone
		}
		return nil
	}
	<-forwarded
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && m.err == nil {
		err = nil
	}
	return errors.Join(m.err, err)
}

func await(ended <-chan error, within time.Duration) (over bool, err error) {
	select {
	case err := <-ended:
		return true, err
	case <-time.After(within):
		return false, nil
	}
}

// watched is a terminal whose loss is noticed. In raw mode, no key ends the input.
type watched struct {
	*os.File
	lost func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.File.Read(p)
	if err != nil {
		w.lost()
	}
	return n, err
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
