package toolrunner

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/web"
)

// defaultWorkspace is where tools work unless Config says otherwise.
const defaultWorkspace = "workspace"

// Config of a tool runner. The zero value is a runner of all
// built-in tools that use no network, and of all tools of plugins.
type Config struct {
	// WorkspaceDir is the only directory that tools can reach; it is created if it does not
	// exist. Default "workspace" in the current directory.
	WorkspaceDir string
	// Protected are files and directories that tools must not reach, such as those with
	// tokens and configuration, beside the key file of Web; see [Config.CheckWorkspace].
	Protected []string
	Files     filesystem.Limits // for the file tools
	// SkillsDir is a directory with skills, each in its folder, beside those in the workspace's
	// folder skills; its skills take precedence. Empty: none. It need not exist.
	SkillsDir string
	// StateDir is where tools record, on this machine, how far their attempts got, so that a probe
	// can prove that a letter was not sent. Empty: nowhere.
	StateDir string
	// Slots limits concurrent calls; default 16. Four times as many may wait.
	Slots int `default:"16" min:"1" max:"4096"`
	HTTP  web.Hosts
	Web   web.Config // what web:search and web:fetch may reach; by default neither is offered
	// MQTT are the brokers; the tool mqtt:publish is offered if something may be published on one.
	MQTT mqttclient.Config
	// Enable and Disable choose tools by patterns such as "file_system:*" or
	// "notes:add" (see [path.Match]). Default: all are enabled. Disable wins.
	Enable, Disable []string
	// NoPlugins leaves out the tools of plugins, which are otherwise offered; Enable
	// and Disable also apply to them.
	NoPlugins bool
	// PluginGrace is how long to wait for the answer of a plugin whose replicas have
	// all left; default 5 s.
	PluginGrace time.Duration `default:"5s" min:"0"`
	// File is the configuration file, whose section email has the accounts of the e-mail tools, and
	// whose section mcp the MCP servers.
	// Tools must not reach it, nor the secrets that it names. Empty: none.
	File string
	// MCPFile is a file with MCP servers beside those of File, which may change while the runner runs;
	// see [mcp.Add]. Tools must not reach it. Empty: none. It need not exist.
	MCPFile string
	// NotesPlugin is the storage plugin that keeps the agents' notes. Default: they
	// are files in the workspace.
	NotesPlugin string
	// DrainTimeout bounds the wait for running calls at the end; default 30 s.
	DrainTimeout time.Duration `default:"30s" min:"0"`
}

func (c Config) withDefaults() Config {
	c.WorkspaceDir = cmp.Or(c.WorkspaceDir, defaultWorkspace)
	if f := c.Web.SecretFile(); f != "" && !slices.Contains(c.Protected, f) {
		c.Protected = append(slices.Clip(c.Protected), f)
	}
	return bounds.Filled(c)
}

// WithFile returns the configuration with the sections of a file that concern tools. An empty path
// changes nothing.
func (c Config) WithFile(path string) (Config, error) {
	if path == "" {
		return c, nil
	}
	var err error
	c.MQTT, err = mqttclient.ReadConfig(path)
	delete(c.MQTT, mqttclient.Embedded) // a file does not say where it is
	c.File = path
	return c, errors.Join(err, mail.CheckFile(path), mcp.CheckFile(path))
}

// Validate reports every field that is wrong; each error names its field.
func (c Config) Validate() error {
	errs := []error{bounds.Check("", c)}
	if c.NotesPlugin != "" {
		if !subject.Valid(c.NotesPlugin) {
			errs = append(errs, fmt.Errorf("notes_plugin: %q is not a valid plugin name", c.NotesPlugin))
		}
		if c.NoPlugins {
			errs = append(errs, fmt.Errorf("notes_plugin is %s, but plugins are disabled", c.NotesPlugin))
		}
	}
	for field, patterns := range map[string][]string{"enable": c.Enable, "disable": c.Disable} {
		for _, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				errs = append(errs, fmt.Errorf("%s: %q is not a valid pattern; use names with * such as file_system:*", field, p))
			}
		}
	}
	return errors.Join(append(errs, c.HTTP.Validate(), c.Web.Validate(), c.Files.Validate(), c.MQTT.Validate())...)
}

// protected lists what tools must not reach.
func (c Config) protected() []string {
	out := slices.Clone(c.Protected)
	if c.StateDir != "" {
		out = append(out, c.StateDir)
	}
	if c.MCPFile != "" {
		out = append(append(out, c.MCPFile), configfile.Secrets(c.MCPFile)...)
	}
	if c.File != "" {
		out = append(append(out, c.File), configfile.Secrets(c.File)...)
	}
	return out
}

// instructs reports whether files of the workspace instruct agents.
func (c Config) instructs() bool { return c.Files.Instructions != filesystem.InstructionsOff }

// wants reports whether Enable and Disable allow a tool.
func (c Config) wants(name string) bool {
	return (len(c.Enable) == 0 || matches(c.Enable, name)) && !matches(c.Disable, name)
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); err == nil && ok {
			return true
		}
	}
	return false
}
