package sensor

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/listener/mapping"
)

// Config of a listener: exactly one source, and the rule for its readings.
type Config struct {
	HTTP           *HTTP       `yaml:"http"`
	Command        *Command    `yaml:"command"`
	File           *File       `yaml:"file"`
	Directory      *Directory  `yaml:"directory"`
	Prometheus     *Prometheus `yaml:"prometheus"`
	mapping.Config `yaml:",inline"`
}

// Poll is how often a source is asked.
type Poll struct {
	Interval time.Duration `yaml:"interval" default:"1m" min:"1s" max:"24h"`   // between the beginnings of two polls
	Timeout  time.Duration `yaml:"timeout" default:"10s" min:"100ms" max:"5m"` // of one poll
	// of a body or an output; a larger one is an error
	MaxBytes int64 `yaml:"max_bytes" default:"256 KiB" min:"1" max:"1 MiB"`
}

// HTTP polls an address.
type HTTP struct {
	URL     string            `yaml:"url"`     // http or https
	Headers map[string]string `yaml:"headers"` // values may be env:NAME or file:PATH
	Poll    `yaml:",inline"`
}

// Command runs a command.
type Command struct {
	Args []string          `yaml:"args"` // program and arguments; no shell
	Dir  string            `yaml:"dir"`  // working directory; default that of the service
	Env  map[string]string `yaml:"env"`  // beside PATH, HOME and LANG; values may be env:NAME or file:PATH
	Poll `yaml:",inline"`
}

// From is where a source begins that has no position yet.
type From string

// Where a source begins.
const (
	FromEnd   From = "end"   // with what is new (default)
	FromStart From = "start" // with what is there
)

// File follows a file.
type File struct {
	Path     string        `yaml:"path"`
	From     From          `yaml:"from"`                                             // end (default) or start, at the first start
	Interval time.Duration `yaml:"interval" default:"500ms" min:"50ms" max:"1h"`     // between two looks
	MaxLine  int64         `yaml:"max_line" default:"64 KiB" min:"16" max:"256 KiB"` // a longer line is dropped and counted
}

// Directory watches a directory, not those below it.
type Directory struct {
	Path     string        `yaml:"path"`
	Pattern  string        `yaml:"pattern"`                                       // of file names, e.g. *.pdf; default all that do not begin with a dot
	From     From          `yaml:"from"`                                          // end (default) or start, at the first start
	Interval time.Duration `yaml:"interval" default:"1s" min:"50ms" max:"1h"`     // between two looks
	Settle   time.Duration `yaml:"settle" default:"2s" min:"50ms" max:"1h"`       // how long a file must not change before it counts
	MaxFiles int           `yaml:"max_files" default:"10000" min:"1" max:"50000"` // more files are an error
}

// Prometheus asks an instant query.
type Prometheus struct {
	URL     string            `yaml:"url"`     // of the server, e.g. http://127.0.0.1:9090
	Query   string            `yaml:"query"`   // PromQL
	Headers map[string]string `yaml:"headers"` // values may be env:NAME or file:PATH
	Poll    `yaml:",inline"`
}

// Validate reports everything that is wrong; each error names its field. The secrets are read
// by [New] and [Config.CheckSecrets].
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Config.Validate()}
	sources := 0
	source := func(name string, is bool, check func() error) {
		if !is {
			return
		}
		sources++
		if err := check(); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				errs = append(errs, errors.New(name+"."+line))
			}
		}
	}
	source("http", c.HTTP != nil, func() error { return errors.Join(checkURL(c.HTTP.URL), bounds.Check("", *c.HTTP)) })
	source("command", c.Command != nil, func() error { return c.Command.validate() })
	source("file", c.File != nil, func() error {
		return errors.Join(checkPath(c.File.Path), checkFrom(c.File.From), bounds.Check("", *c.File))
	})
	source("directory", c.Directory != nil, func() error { return c.Directory.validate() })
	source("prometheus", c.Prometheus != nil, func() error {
		err := bounds.Check("", *c.Prometheus)
		if strings.TrimSpace(c.Prometheus.Query) == "" {
			err = errors.Join(err, errors.New("query is empty; write what to ask, e.g. up == 0"))
		}
		return errors.Join(checkURL(c.Prometheus.URL), err)
	})
	if sources != 1 {
		errs = append(errs, fmt.Errorf("http, command, file, directory, prometheus: %d of them are set, want exactly one", sources))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Config = bounds.Filled(c.Config)
	fill(&c.HTTP)
	fill(&c.Command)
	fill(&c.File)
	fill(&c.Directory)
	if fill(&c.Prometheus); c.Prometheus != nil && c.ValueField == "" {
		c.ValueField = "/value"
	}
	return c
}

func fill[T any](p **T) {
	if *p != nil {
		filled := bounds.Filled(**p)
		*p = &filled
	}
}

func (c Command) validate() error {
	errs := []error{bounds.Check("", c)}
	if len(c.Args) == 0 || c.Args[0] == "" {
		errs = append(errs, errors.New("args is empty; name the program and its arguments"))
	}
	for name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			errs = append(errs, fmt.Errorf("env: %q is not a valid name", name))
		}
	}
	return errors.Join(errs...)
}

func (d Directory) validate() error {
	errs := []error{checkPath(d.Path), checkFrom(d.From), bounds.Check("", d)}
	if _, err := path.Match(d.Pattern, ""); err != nil || strings.Contains(d.Pattern, "/") {
		errs = append(errs, fmt.Errorf("pattern: %q is not a pattern of file names, such as *.pdf", d.Pattern))
	}
	return errors.Join(errs...)
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return errors.New("url: want http://… or https://…; put credentials into headers")
	}
	return nil
}

func checkPath(p string) error {
	if !filepath.IsAbs(p) {
		return fmt.Errorf("path is %q, want an absolute path", p)
	}
	return nil
}

func checkFrom(f From) error {
	if f != "" && f != FromEnd && f != FromStart {
		return fmt.Errorf("from is %q, want end or start", f)
	}
	return nil
}

// CheckSecrets reads the secrets and reports everything that is wrong with them.
func (c Config) CheckSecrets() error {
	var errs []error
	for field, values := range map[string]map[string]string{
		"http.headers": c.httpHeaders(), "prometheus.headers": c.prometheusHeaders(), "command.env": c.commandEnv(),
	} {
		if _, err := secrets(values); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", field, err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) httpHeaders() map[string]string {
	if c.HTTP == nil {
		return nil
	}
	return c.HTTP.Headers
}

func (c Config) prometheusHeaders() map[string]string {
	if c.Prometheus == nil {
		return nil
	}
	return c.Prometheus.Headers
}

func (c Config) commandEnv() map[string]string {
	if c.Command == nil {
		return nil
	}
	return c.Command.Env
}

// secrets reads the values of headers or of the environment.
func secrets(values map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for name, v := range values {
		read, err := secret.Read(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = read
	}
	return out, nil
}
