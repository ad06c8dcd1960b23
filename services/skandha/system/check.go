package system

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skandha.dev/services/core"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/listener"
	"skandha.dev/services/provider"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/uibridge"
)

// CheckConfig reports everything that is wrong in a configuration file, in all its
// sections, and in the secrets that they name; without a file it reports nothing. The page's
// secrets are read only if it is served.
func CheckConfig(file string, page bool) error {
	_, core := core.ReadConfig(file)
	listeners := listener.CheckFile(file)
	if errors.Is(listeners, listener.ErrNoSection) {
		listeners = nil
	}
	_, ui := uibridge.ReadConfig(file)
	if page {
		ui = uibridge.CheckFile(file)
	}
	_, providers := provider.ReadSettings(file)
	return configfile.Join(core, listeners, mail.CheckFile(file), mqttclient.CheckFile(file), mcp.CheckFile(file), providers, ui)
}

// check reports what is wrong with the configuration before anything is started.
func (s *System) check() error {
	errs := []error{
		CheckConfig(s.cfg.ConfigFile, s.cfg.UI != nil), s.runnerConfig().Validate(), s.providerConfig().Validate(),
	}
	if s.cfg.UI != nil {
		errs = append(errs, s.cfg.UI.Flags(s.cfg.ConfigFile).Check())
	}
	return errors.Join(errs...)
}

// minFree is how many bytes a start needs on the disk of the data directory.
const minFree = 1 << 20

// explained adds to a startup error that the disk of the data directory is full,
// as not all components report that themselves.
func explained(err error, data string) error {
	var disk unix.Statfs_t
	if err == nil || unix.Statfs(data, &disk) != nil ||
		disk.Bavail*uint64(disk.Bsize) >= minFree { //nolint:gosec // a size
		return err
	}
	return fmt.Errorf("%w; the disk of %s is full: free space on it, or choose another directory with --data DIR", err,
		data)
}

// warnOfProviders logs the agents whose provider this system does not have: a plugin may
// still offer it, and until then their turns wait.
func (s *System) warnOfProviders(agents map[string]core.AgentConfig, adapters []provider.Adapter) {
	var here []string
	for _, a := range adapters {
		here = append(here, a.Info().Name)
	}
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		for _, p := range agents[name].Provider {
			if p, _, _ := strings.Cut(p, "/"); !slices.Contains(here, p) {
				s.log.Warn(fmt.Sprintf("agents.%s.provider is %q, which is not available yet: want one of %s, or %s",
					name, p, strings.Join(here, ", "), offering(p, here)))
			}
		}
	}
}

// offering says how to make a provider available beside those that are.
func offering(name string, here []string) string {
	switch name {
	case provider.NameOpenAI, provider.NameAnthropic, provider.NameGemini, provider.NameLocal, provider.NameOffline:
		return "start with --provider " + strings.Join(append(slices.Clone(here), name), ",")
	}
	return "start the plugin that offers it"
}
