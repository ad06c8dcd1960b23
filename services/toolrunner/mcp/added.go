package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"gopkg.in/yaml.v3"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/periodic"
)

// AddedFile is the file of a data directory with the servers that were added while the system ran.
const AddedFile = "mcp.yaml"

// ErrExists means that a server of the name was added before.
var ErrExists = errors.New("there is a server of this name")

// ErrNone means that no server of the name was added.
var ErrNone = errors.New("no server of this name was added")

// Added reads a file of servers that were added, which has the form of a configuration file; there
// are none if it does not exist.
func Added(path string) (Config, error) {
	c, err := ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	return c, err
}

// Add adds a server to a file; a runner that follows it connects.
func Add(path, name string, s Server) error {
	return change(path, func(servers map[string]Server) error {
		if _, there := servers[name]; there {
			return fmt.Errorf("%s: %w; remove it first", name, ErrExists)
		}
		servers[name] = s
		return nil
	})
}

// Remove removes a server from a file; a runner that follows it ends the connection.
func Remove(path, name string) error {
	return change(path, func(servers map[string]Server) error {
		if _, there := servers[name]; !there {
			return fmt.Errorf("%s: %w", name, ErrNone)
		}
		delete(servers, name)
		return nil
	})
}

// change replaces the file at once. It may name secrets, so only its owner can read it.
func change(path string, f func(map[string]Server) error) error {
	unlock, err := locked(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	c, err := Added(path)
	if err != nil {
		return err
	}
	servers := map[string]Server{}
	maps.Copy(servers, c.Servers)
	if err := f(servers); err != nil {
		return err
	}
	c = Config{Servers: servers}
	if err := c.Validate(); err != nil {
		return err
	}
	b, err := yaml.Marshal(map[string]Config{"mcp": c})
	if err != nil {
		return fmt.Errorf("encoding the servers: %w", err)
	}
	// What cannot be read again must not replace what can.
	if _, err := configfile.Parse(path, b, ParseConfig, Config.Validate); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(b)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// Follow connects to the servers of the configuration, and to those of the file from now on, until ctx
// ends. A server of the configuration takes precedence over one that was added.
func (g *Group) Follow(ctx context.Context, c Config, path string) {
	g.Start(c)
	if path == "" {
		return
	}
	var last []byte
	read, wrong := false, ""
	refresh := func() {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			b, err = nil, nil
		}
		if err == nil && read && bytes.Equal(b, last) {
			return
		}
		var added Config
		if err == nil {
			added, err = configfile.Parse(path, b, ParseConfig, Config.Validate)
		}
		if err != nil { // what was added before stays
			if wrong != err.Error() {
				g.opt.Logger.Warn("the MCP servers that were added cannot be read", "error", err)
			}
			wrong = err.Error()
			return
		}
		last, read, wrong = b, true, ""
		g.apply(c, added)
	}
	refresh()
	g.done.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(g.ctx, cancel)()
		periodic.Every(ctx, g.opt.Recheck, refresh)
	})
}

// apply connects to what was added, and ends the connections to what was removed or has changed.
func (g *Group) apply(configured, added Config) {
	g.mu.Lock()
	var gone []*link
	for name, l := range g.links {
		s, there := added.Servers[name]
		if l.added && (!there || !reflect.DeepEqual(bounds.Filled(s), l.server)) {
			gone = append(gone, l)
			delete(g.links, name)
		}
	}
	g.mu.Unlock()
	for _, l := range gone {
		l.end()
	}
	for name, s := range added.Servers {
		if _, taken := configured.Servers[name]; taken {
			g.opt.Logger.Warn("an MCP server that was added is not used: the configuration has one of its name", "server", name)
			continue
		}
		g.mu.Lock()
		_, there := g.links[name]
		g.mu.Unlock()
		if !there {
			g.add(name, s, true)
		}
	}
	g.refresh()
}
