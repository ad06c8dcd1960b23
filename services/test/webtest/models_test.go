package webtest_test

import (
	"context"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/test/webtest"
)

// A person chooses the model of a session beside the input field. The choice is the session's,
// so that another page shows it.
func TestTheModelOfASessionIsChosen(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "models")
	p.Wait(`one(".composer-model").hidden`) // there is nothing to choose
	r.Plug(plugin.Manifest{Name: "temple", Version: "1.0.0"}, "temple:bell",
		plugin.Tool("temple:bell", "Rings.", func(context.Context, struct{}) (string, error) { return "ding", nil }),
		plugin.Provider(provider.Info{Name: "oracle", Model: "delphi"},
			func(context.Context, provider.Call) (provider.Response, error) {
				return provider.Response{TextContent: "know thyself", StopReason: provider.StopEnd}, nil
			}))
	p.Session("models-2")
	p.Wait(`[...one(".composer-model").options].some((o) => o.value === "oracle" && o.text === "oracle: delphi")`)
	p.Wait(`one(".composer-model").title.includes("no embedder is configured")`)
	p.Wait(`!one(".composer-model").hidden && one(".composer-model").value === "default"`)
	webtest.Get[bool](p, `(one(".composer-model").value = "oracle", one(".composer-model").dispatchEvent(new Event("change")))`)
	p.Wait(`text(".transcript").includes("From now on oracle answers this session")`)
	p.Say("who am I?")
	p.Wait(`text(".transcript").includes("know thyself")`)
	p.Shot("models")
	q := r.SignedIn(t, "models-2")
	q.Wait(`one(".composer-model").value === "oracle"`)
	p.Say("/provider default")
	p.Wait(`one(".composer-model").value === "default"`)
}
