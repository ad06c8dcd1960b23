// Command skandha-toolrunner runs the tool runner as a separate process.
package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/toolrunner"
	"skandha.dev/services/toolrunner/tools/filesystem"
	"skandha.dev/services/toolrunner/tools/web"
)

type service struct {
	process.Flags
	Config    string            `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"The e-mail accounts (YAML, section email), the brokers of mqtt:publish (section mqtt) and the MCP servers (section mcp). None: these tools are not offered."`
	Workspace string            `env:"SKANDHA_WORKSPACE" default:"workspace" placeholder:"DIR" help:"The only directory that tools can reach."`
	Slots     int               `env:"SKANDHA_SLOTS" default:"16" help:"Limit of concurrent calls."`
	Enable    []string          `env:"SKANDHA_ENABLE" placeholder:"PATTERN" help:"Tools to offer, e.g. file_system:*. Default: all."`
	Disable   []string          `env:"SKANDHA_DISABLE" placeholder:"PATTERN" help:"Tools not to offer; wins over --enable."`
	Plugins   bool              `env:"SKANDHA_PLUGINS" default:"true" negatable:"" help:"Also offer the tools of plugins."`
	Notes     string            `name:"notes-plugin" env:"SKANDHA_NOTES_PLUGIN" placeholder:"NAME" help:"Storage plugin that keeps the agents' notes. Default: files in the workspace."`
	Skills    string            `name:"skills-dir" env:"SKANDHA_SKILLS_DIR" placeholder:"DIR" help:"Directory with skills, beside those in the folder skills of the workspace."`
	MCP       string            `name:"mcp-file" env:"SKANDHA_MCP_FILE" placeholder:"FILE" help:"More MCP servers (YAML, section mcp); it may change while the runner runs."`
	State     string            `name:"state-dir" env:"SKANDHA_STATE_DIR" placeholder:"DIR" help:"Directory of this machine in which the e-mail tools record how far they got, and commands of MCP servers have their homes; it should survive restarts. Default: none."`
	Drain     time.Duration     `env:"SKANDHA_DRAIN" default:"30s" help:"Grace period for running calls on shutdown."`
	Files     filesystem.Limits `embed:"" prefix:"files-"`
	HTTP      web.Hosts         `embed:"" prefix:"http-"`
	Web       web.Config        `embed:"" prefix:"web-"`
}

func (s *service) config() (toolrunner.Config, error) {
	return toolrunner.Config{
		StateDir: s.State, MCPFile: s.MCP, Protected: slices.DeleteFunc([]string{s.Creds, s.Skills}, func(path string) bool { return path == "" }),
		Files: s.Files, WorkspaceDir: s.Workspace, Slots: s.Slots, HTTP: s.HTTP, Web: s.Web,
		Enable: s.Enable, Disable: s.Disable, NoPlugins: !s.Plugins, NotesPlugin: s.Notes, SkillsDir: s.Skills, DrainTimeout: s.Drain,
	}.WithFile(s.Config)
}

// Check implements process.Service.
func (s *service) Check() error {
	c, err := s.config()
	return errors.Join(err, c.Validate(), c.CheckWorkspace())
}

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	return toolrunner.Run(ctx, c, toolrunner.Deps{Bus: e.Bus, Logger: e.Log})
}

func main() {
	var s service
	process.Main("skandha-toolrunner", "Runs tools for Skandha's core, over NATS.", &s.Flags, &s)
}
