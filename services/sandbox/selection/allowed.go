package selection

import (
	"errors"

	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/docker/proxy"
)

// Allowed are the flags of the engine proxy: the part of [Flags] that it holds the sandbox service to. They
// have the same variables, so that one environment configures both.
type Allowed struct {
	Image      string  `env:"SKANDHA_SANDBOX_IMAGE" placeholder:"IMAGE" help:"The only image of containers. Default: the image that make sandbox-image builds."`
	Runtime    string  `env:"SKANDHA_SANDBOX_RUNTIME" placeholder:"NAME" help:"The only runtime. Default: runsc if the engine offers it, else the engine's default."`
	Owner      string  `env:"SKANDHA_SANDBOX_OWNER" placeholder:"NAME" help:"Label of the containers and volumes that the sandbox service may use. Default: skandha."`
	Memory     int64   `env:"SKANDHA_SANDBOX_MEMORY" default:"1024" placeholder:"MIB" help:"Maximum memory of a sandbox in MiB."`
	CPUs       float64 `name:"cpus" env:"SKANDHA_SANDBOX_CPUS" default:"2" help:"Maximum number of CPUs of a sandbox."`
	PIDs       int64   `name:"pids" env:"SKANDHA_SANDBOX_PIDS" default:"128" help:"Maximum number of processes and threads of a sandbox."`
	Workspace  int64   `name:"files" env:"SKANDHA_SANDBOX_FILES" default:"256" placeholder:"MIB" help:"Maximum space for files of a sandbox in MiB."`
	Packages   bool    `env:"SKANDHA_SANDBOX_PACKAGES" default:"true" negatable:"" help:"Allow installing packages."`
	Index      string  `env:"SKANDHA_SANDBOX_INDEX" placeholder:"URL" help:"The only package index. Default: pip's."`
	PipProxy   string  `name:"proxy" env:"SKANDHA_SANDBOX_PROXY" placeholder:"URL" help:"The only HTTP proxy for it."`
	Containers int     `env:"SKANDHA_ENGINE_CONTAINERS" default:"256" help:"Maximum number of containers."`
	Volumes    int     `env:"SKANDHA_ENGINE_VOLUMES" default:"1024" help:"Maximum number of volumes."`
}

func (a Allowed) dependencies() deps.Config { return deps.Config{Index: a.Index, Proxy: a.PipProxy} }

// Validate reports every invalid flag that is not part of a proxy's configuration.
func (a Allowed) Validate() error { return a.dependencies().Validate() }

// Proxy returns the part of a proxy's configuration that the flags are about.
func (a Allowed) Proxy() proxy.Config {
	f := Flags{Memory: a.Memory, CPUs: a.CPUs, PIDs: a.PIDs, Workspace: a.Workspace}
	c := proxy.Config{
		Image: a.Image, Runtime: a.Runtime, Owner: a.Owner, Limits: f.Limits(), Containers: a.Containers, Volumes: a.Volumes,
		Install: a.dependencies().Recognize,
	}
	if !a.Packages {
		c.Install = func([]string) error { return errors.New("installing packages is disabled (SKANDHA_SANDBOX_PACKAGES)") }
	}
	return c
}
