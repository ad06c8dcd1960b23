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

// listListeners returns the listeners of all processes, by name and process.
func (i *inspector) listListeners(ctx context.Context, _ contract.Principal, _ none) ([]senses.Listed, error) {
	all, err := senses.List(ctx, i.client.Journal)
	if all == nil {
		all = []senses.Listed{}
	}
	return all, err
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

// switchListener switches a camera or microphone, and returns it with the new switch, in every process
// that has it. They follow soon: the lights then say so.
func (i *inspector) switchListener(ctx context.Context, p contract.Principal, q listenerSwitch) ([]senses.Listed, error) {
	if !subject.Valid(q.Listener) {
		return nil, contract.Invalid("listener", notAnID)
	}
	name := subject.Writer(q.Listener)
	find := func() ([]senses.Listed, error) {
		all, err := i.listListeners(ctx, p, none{})
		all = slices.DeleteFunc(all, func(l senses.Listed) bool { return l.Listener != name })
		if err == nil && len(all) == 0 {
			err = &contract.Error{
				Code: contract.CodeNotFound, Message: fmt.Sprintf("no listener %q is running; listListeners lists them", q.Listener),
			}
		}
		return all, err
	}
	all, err := find()
	switch {
	case err != nil:
		return nil, err
	case all[0].Media == "":
		return nil, contract.Invalid("listener",
			fmt.Sprintf("is %s, of kind %s; only a camera or a microphone can be switched", q.Listener, all[0].Kind))
	}
	if _, err := senses.Turn(ctx, i.client.Journal, name, q.On, string(p.Writer)); err != nil {
		return nil, err
	}
	i.log.Info("listener switched", "listener", q.Listener, "on", q.On, "by", p.Writer)
	return find()
}
