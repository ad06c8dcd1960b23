package shell_test

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
)

// A gateway that is away keeps its name: what waits for it is not for a plugin.
func TestNoPluginTakesTheNameOfAConfiguredListener(t *testing.T) {
	t.Parallel()
	var cfg core.Config
	if err := yaml.Unmarshal([]byte("listeners: {http: {listen: x}, push: {phone: {}}, irc: {libera: {}}}"), &cfg); err != nil {
		t.Fatal(err)
	}
	s := start(t, cfg)
	report := func(name subject.Writer) {
		if err := senses.Put(natstest.Context(t), s.bus, senses.Report{Listener: name, Instance: s.bus.Instance()}); err != nil {
			t.Fatal(err)
		}
	}
	listens := func(name, listener string) plugin.Manifest {
		return plugin.Manifest{Name: subject.Plugin(name), Listeners: []plugin.Listener{{Name: subject.Writer(listener)}}}
	}
	sensor := plugin.Manifest{Name: "senses", Sensors: []plugin.Listener{{Name: "libera"}}}
	report("killed")
	for _, m := range []plugin.Manifest{
		listens("of-the-file", "phone"), sensor, listens("of-a-report", "killed"),
	} {
		p := s.connectPlugin(m, nil)
		_, err := p.ask(subject.Register, p.m)
		if bus.CodeOf(err) != bus.CodeInvalidArgument || !strings.Contains(err.Error(), "of the listener service") {
			t.Errorf("%s: %v", m.Name, err)
		}
	}

	s.plug(listens("first", "free"), nil)
	report("free")
	natstest.Eventually(t, "the plugin is suspended", func() bool {
		pl := s.core.Plugins().Get("first")
		return pl != nil && pl.State == plugin.Suspended && strings.Contains(pl.Reason, "listener free is one of the listener service")
	})
}
