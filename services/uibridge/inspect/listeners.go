package inspect

import (
	"context"
	"fmt"
	"slices"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// ListenerInfo is a listener with its state and, for a camera or microphone, what people have
// decided.
type ListenerInfo struct {
	senses.Report
	// Switch is absent if nobody has switched it: then its configuration decides.
	Switch *senses.Switch `json:"switch,omitempty"`
}

// listListeners returns the listeners of all processes, by name.
func (i *inspector) listListeners(ctx context.Context, _ contract.Principal, _ none) ([]ListenerInfo, error) {
	reports, err := senses.List(ctx, i.client.Journal)
	if err != nil {
		return nil, err
	}
	switches, err := senses.Switches(ctx, i.client.Journal)
	if err != nil {
		return nil, err
	}
	out := make([]ListenerInfo, 0, len(reports))
	for _, r := range reports {
		l := ListenerInfo{Report: r}
		if s, ok := switches[r.Listener]; ok && r.Media != "" {
			l.Switch = &s
		}
		out = append(out, l)
	}
	return out, nil
}

type listenerSwitch struct {
	Listener string
	On       bool
}

func (q *listenerSwitch) params() []request.Param {
	return []request.Param{
		{Name: "listener", Into: &q.Listener, Must: true},
		{Name: "on", Into: &q.On, Must: true},
	}
}

// switchListener switches a camera or microphone, and returns it with the new switch. The listener
// follows soon: its report then says whether it sees or hears.
func (i *inspector) switchListener(ctx context.Context, p contract.Principal, q listenerSwitch) (ListenerInfo, error) {
	if !subject.Valid(q.Listener) {
		return ListenerInfo{}, contract.Invalid("listener", notAnID)
	}
	name := subject.Writer(q.Listener)
	find := func() (ListenerInfo, error) {
		all, err := i.listListeners(ctx, p, none{})
		if err != nil {
			return ListenerInfo{}, err
		}
		n := slices.IndexFunc(all, func(l ListenerInfo) bool { return l.Listener == name })
		if n < 0 {
			return ListenerInfo{}, &contract.Error{
				Code: contract.CodeNotFound, Message: fmt.Sprintf("no listener %q is running; listListeners lists them", q.Listener),
			}
		}
		return all[n], nil
	}
	l, err := find()
	switch {
	case err != nil:
		return ListenerInfo{}, err
	case l.Media == "":
		return ListenerInfo{}, contract.Invalid("listener",
			fmt.Sprintf("is %s, of kind %s; only a camera or a microphone can be switched", q.Listener, l.Kind))
	}
	if err := senses.Turn(ctx, i.client.Journal, name, q.On, string(p.Writer)); err != nil {
		return ListenerInfo{}, err
	}
	i.log.Info("listener switched", "listener", q.Listener, "on", q.On, "by", p.Writer)
	return find()
}
