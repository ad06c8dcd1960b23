package mcp

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/configfile"
	"skandha.dev/services/internal/secret"
)

// Config is the section mcp of the configuration file.
type Config struct {
	Servers map[string]Server `yaml:"servers"`
}

// Server is an MCP server: what is reached at a URL, or a command that speaks MCP on its standard input
// and output.
type Server struct {
	URL     string            `yaml:"url,omitempty" json:"url,omitempty"`         // of the streamable HTTP endpoint
	Headers map[string]string `yaml:"headers,omitempty" json:"headers,omitempty"` // of each request; env:NAME or file:PATH for secrets
	Token   string            `yaml:"token,omitempty" json:"token,omitempty"`     // env:NAME or file:PATH: sent as Authorization: Bearer
	OAuth   *OAuth            `yaml:"oauth,omitempty" json:"oauth,omitempty"`     // instead of a token

	Command   []string          `yaml:"command,omitempty" json:"command,omitempty"`     // program and arguments, instead of a url
	Env       map[string]string `yaml:"env,omitempty" json:"env,omitempty"`             // of the command; env:NAME or file:PATH for secrets
	Dir       string            `yaml:"dir,omitempty" json:"dir,omitempty"`             // where the command starts; only with isolation host
	Isolation Isolation         `yaml:"isolation,omitempty" json:"isolation,omitempty"` // of the command: sandbox (default) or host
	Network   bool              `yaml:"network,omitempty" json:"network,omitempty"`     // the command has the host's network, in the sandbox, too
	Read      []string          `yaml:"read,omitempty" json:"read,omitempty"`           // directories that the command sees in the sandbox, read-only

	Trust Trust `yaml:"trust,omitempty" json:"trust,omitempty"` // none (default), or annotations: believe what the server says of its tools
	Tools Tools `yaml:"tools,omitempty" json:"tools,omitzero"`
}

// OAuth are credentials with which access tokens are obtained (client credentials grant, RFC 6749). The
// server says where; what it names must be the issuer.
type OAuth struct {
	Issuer       string `yaml:"issuer" json:"issuer"`               // URL of the authorization server; required
	ClientID     string `yaml:"client_id" json:"client_id"`         // required
	ClientSecret string `yaml:"client_secret" json:"client_secret"` // env:NAME or file:PATH; required
}

// Tools says which tools of a server are offered, and as what. Patterns are those of path.Match, for
// names without the server's.
type Tools struct {
	Enable     []string             `yaml:"enable,omitempty" json:"enable,omitempty"`         // patterns; default all
	Disable    []string             `yaml:"disable,omitempty" json:"disable,omitempty"`       // patterns; wins over enable
	Risk       map[string]tool.Risk `yaml:"risk,omitempty" json:"risk,omitempty"`             // low, medium or high by pattern; default high
	Idempotent []string             `yaml:"idempotent,omitempty" json:"idempotent,omitempty"` // patterns: a call may be repeated
	// limit of a call
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" default:"1m" min:"1s" max:"2h"`
}

// Isolation is where a command runs.
type Isolation string

// The places.
const (
	Sandbox Isolation = "sandbox" // bubblewrap: the system's programs, read-only, and a home (default)
	Host    Isolation = "host"    // like any other program of this user
)

// Trust is what is believed of what a server says.
type Trust string

// The degrees.
const (
	TrustNone        Trust = "none"        // nothing (default)
	TrustAnnotations Trust = "annotations" // hints of tools: read-only is of low risk, not destructive of medium
)

// ParseConfig decodes the section from the text of a configuration file; it may be missing.
func ParseConfig(file []byte) (c Config, err error) {
	_, err = configfile.Section(file, "mcp", &c)
	return c, err
}

// ReadConfig reads and checks the section of a configuration file; an empty path means none.
func ReadConfig(path string) (Config, error) {
	return configfile.Read(path, ParseConfig, Config.Validate)
}

// CheckFile checks the section as ReadConfig does, and reads the secrets that it names.
func CheckFile(path string) error {
	_, err := configfile.Read(path, ParseConfig, func(c Config) error {
		errs := []error{c.Validate()}
		for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
			if _, err := c.Servers[name].secrets(); err != nil {
				errs = append(errs, prefixed("mcp.servers."+name+".", err))
			}
		}
		return errors.Join(errs...)
	})
	return err
}

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		at := "mcp.servers." + name
		if err := CheckName(name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		}
		if err := c.Servers[name].Validate(); err != nil {
			errs = append(errs, prefixed(at+".", err))
		}
	}
	return errors.Join(errs...)
}

// CheckName returns why a server cannot have the name, which begins the names of its tools.
func CheckName(name string) error {
	if !subject.Valid(name) || len(name) > maxServerName {
		return fmt.Errorf("the name %q is not valid; use 1 to %d characters of A-Z a-z 0-9 _ -", name, maxServerName)
	}
	return tool.CheckName(name + ":x")
}

// maxServerName leaves room for the name of a tool, in bytes.
const maxServerName = 24

// prefixed puts a path before each line of an error.
func prefixed(path string, err error) error {
	var errs []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		errs = append(errs, errors.New(path+line))
	}
	return errors.Join(errs...)
}

// Validate reports everything that is wrong; each error begins with its field.
func (s Server) Validate() error {
	s = bounds.Filled(s)
	errs := []error{bounds.Check("", s)}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case (s.URL == "") == (len(s.Command) == 0):
		wrong("url: set either url or command")
	case s.URL != "":
		if _, err := s.endpoint(); err != nil {
			errs = append(errs, err)
		}
		if len(s.Env)+len(s.Read) > 0 || s.Dir != "" || s.Isolation != "" || s.Network {
			wrong("url: env, dir, isolation, network and read are for servers with a command; remove them")
		}
	case s.Command[0] == "":
		wrong("command: the first element must name a program")
	case len(s.Headers) > 0 || s.Token != "" || s.OAuth != nil:
		wrong("command: headers, token and oauth are for servers with a url; use env")
	}
	if o := s.OAuth; o != nil {
		if o.Issuer == "" || o.ClientID == "" || o.ClientSecret == "" {
			wrong("oauth: issuer, client_id and client_secret are required")
		}
		if s.Token != "" {
			wrong("oauth: set either oauth or token")
		}
	}
	switch s.Isolation {
	case "", Sandbox:
		if s.Dir != "" {
			wrong("dir: requires isolation: host; in the sandbox, a command starts in its home")
		}
	case Host:
		if len(s.Read) > 0 {
			wrong("read: with isolation host, the command sees all files; remove it")
		}
	default:
		wrong("isolation is %q, want sandbox or host", s.Isolation)
	}
	if s.Trust != "" && s.Trust != TrustNone && s.Trust != TrustAnnotations {
		wrong("trust is %q, want none or annotations", s.Trust)
	}
	for i, dir := range s.Read {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
			wrong("read[%d]: %q is not an absolute path of a directory below /", i, dir)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if strings.Trim(name, tokenChars) != "" || name == "" || strings.EqualFold(name, "host") {
			wrong("headers: %q is not the name of a header", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			wrong("env: %q is not the name of a variable", name)
		}
	}
	return errors.Join(append(errs, s.Tools.check()...)...)
}

const tokenChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func (t Tools) check() (errs []error) {
	patterns := map[string][]string{
		"enable": t.Enable, "disable": t.Disable, "idempotent": t.Idempotent, "risk": slices.Sorted(maps.Keys(t.Risk)),
	}
	for _, field := range slices.Sorted(maps.Keys(patterns)) {
		for _, p := range patterns[field] {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				errs = append(errs, fmt.Errorf("tools.%s: %q is not a valid pattern; use names with * such as get_*", field, p))
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t.Risk)) {
		if r := t.Risk[p]; r != tool.RiskLow && r != tool.RiskMedium && r != tool.RiskHigh {
			errs = append(errs, fmt.Errorf("tools.risk.%s is %q, want low, medium or high", p, r))
		}
	}
	return errs
}

func (s Server) endpoint() (*url.URL, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("url: want http://HOST:PORT/PATH or https://HOST/PATH; put credentials into token or headers")
	}
	return u, nil
}

// transport says how the server is reached, for people.
func (s Server) transport() string {
	if s.URL != "" {
		return "http"
	}
	return "stdio"
}

// secrets are the values that a connection needs.
type secrets struct {
	headers map[string]string // with the token's
	env     map[string]string
	client  string // OAuth's secret
	known   secret.Known
}

func (s Server) secrets() (out secrets, err error) {
	var errs []error
	var values []string // of what names a secret: others, such as a mode, are words of any text
	read := func(field string, m map[string]string) map[string]string {
		read := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			v, err := secret.Read(m[name])
			if err == nil && strings.ContainsAny(v, "\r\n\x00") && field == "headers" {
				err = errors.New("the value has a line break")
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.%s: %w", field, name, err))
			}
			if v != m[name] {
				values = append(values, v)
			}
			read[name] = v
		}
		return read
	}
	out.headers, out.env = read("headers", s.Headers), read("env", s.Env)
	if s.Token != "" {
		v, err := secret.Read(s.Token)
		if err != nil {
			errs = append(errs, fmt.Errorf("token: %w", err))
		}
		out.headers["Authorization"] = "Bearer " + v
		values = append(values, v)
	}
	if s.OAuth != nil {
		if out.client, err = secret.Read(s.OAuth.ClientSecret); err != nil {
			errs = append(errs, fmt.Errorf("oauth.client_secret: %w", err))
		}
		values = append(values, out.client)
	}
	out.known = secret.NewKnown(values...)
	return out, errors.Join(errs...)
}

// wants reports whether enable and disable allow a tool.
func (t Tools) wants(name string) bool {
	return (len(t.Enable) == 0 || matches(t.Enable, name)) && !matches(t.Disable, name)
}

// risk returns the risk that is configured for a tool: the highest of all patterns that match.
func (t Tools) risk(name string) (risk tool.Risk) {
	order := []tool.Risk{tool.RiskLow, tool.RiskMedium, tool.RiskHigh}
	for p, r := range t.Risk {
		if matches([]string{p}, name) && slices.Index(order, r) > slices.Index(order, risk) {
			risk = r
		}
	}
	return risk
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}
