package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/uibridge/contract"
)

// agents caches the names of core's agents.
type agents struct {
	ask func(context.Context) ([]subject.Agent, error)

	mu    sync.Mutex
	names []subject.Agent
	asked time.Time // time of the last request, successful or not
}

const (
	agentsFresh = time.Minute     // how long a name is cached
	agentsAgain = time.Second     // minimum interval between requests to core
	agentsWait  = 2 * time.Second // timeout of a request
)

// unknown reports whether core is known not to have the agent, and which agents it has.
func (a *agents) unknown(ctx context.Context, name subject.Agent) ([]subject.Agent, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := slices.Contains(a.names, name)
	age := time.Since(a.asked)
	if has && age < agentsFresh {
		return nil, false
	}
	if age >= agentsAgain {
		ctx, cancel := context.WithTimeout(ctx, agentsWait)
		defer cancel()
		names, err := a.ask(ctx)
		a.asked = time.Now()
		if err != nil {
			a.names = nil // the check is left to core, which fails inputs for unknown agents
			return nil, false
		}
		a.names = names
		has = slices.Contains(names, name)
	}
	return a.names, !has && len(a.names) > 0
}

func (b *Backend) askAgents(ctx context.Context) ([]subject.Agent, error) {
	var s coreapi.Status
	err := b.client.Ask(ctx, coreapi.VerbStatus, nil, &s)
	return s.Agents, err
}

// checkRef validates both names.
func (b *Backend) checkRef(ctx context.Context, ref subject.Ref) error {
	if _, err := subject.Parse[subject.Agent](string(ref.Agent)); err != nil {
		return contract.Invalid("agent", err.Error())
	}
	if _, err := subject.Parse[subject.Session](string(ref.Session)); err != nil {
		return contract.Invalid("session", err.Error())
	}
	if known, unknown := b.agents.unknown(ctx, ref.Agent); unknown {
		names := make([]string, len(known))
		for i, n := range known {
			names[i] = string(n)
		}
		slices.Sort(names)
		return &contract.Error{
			Code: contract.CodeNotFound, Field: "agent",
			Message: fmt.Sprintf("no agent %q; available: %s", ref.Agent, strings.Join(names, ", ")),
		}
	}
	return nil
}
