package provider_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/test/natstest"

	contract "skandha.dev/pkg/provider"
)

// remoteAPI is an adapter whose API can be asked how it is.
type remoteAPI struct {
	billed
	models []string
	err    error
}

func (r *remoteAPI) Models(context.Context) ([]string, error) { return r.models, r.err }

func (r *remoteAPI) Breaker() providerapi.Breaker {
	return providerapi.Breaker{State: providerapi.Closed}
}

// report asks the process for its report.
func (c *core) report() (r providerapi.Report) {
	c.t.Helper()
	body, err := c.caller.Request(natstest.Context(c.t), subject.Service(providerapi.ServiceName, string(c.exec)),
		providerapi.ServiceName, nil)
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestAProcessReportsItsProviders(t *testing.T) {
	up := &remoteAPI{billed: billed{name: "up"}, models: []string{"z", "a"}}
	down := &remoteAPI{billed: billed{name: "down"}, err: adapter.Errorf(contract.ErrAuth, "the key was refused")}
	c := start(t, provider.Config{Settings: provider.Settings{
		Prices: budget.Prices{"up/m": {Input: new(1.0), Output: new(2.0)}}, Budget: budget.Limit{USD: 3},
	}}, up, down, &billed{name: "offline"})
	r := c.report()
	if len(r.Providers) != 3 {
		t.Fatalf("the report is %+v", r)
	}
	if p := r.Providers[0]; !*p.Reachable || !slices.Equal(p.Models, []string{"a", "z"}) || p.Price.Output != 2 ||
		p.Breaker.State != providerapi.Closed {
		t.Errorf("%+v", p)
	}
	if p := r.Providers[1]; *p.Reachable || p.Error != "the key was refused" || p.Price != nil {
		t.Errorf("%+v", p)
	}
	if p := r.Providers[2]; p.Reachable != nil || p.Price == nil || *p.Price != (providerapi.Price{}) {
		t.Errorf("%+v", p)
	}
	if b := r.Budget; b == nil || b.LimitMicroUSD != 3_000_000 || b.SpentMicroUSD == nil || b.Per != "day" {
		t.Errorf("the budget is %+v", b)
	}
}
