package deps

import (
	"context"
	_ "embed" // install.py
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"skandha.dev/services/sandbox/driver"
)

// program runs in the installing sandbox; its docstring describes its output.
//
//go:embed install.py
var program string

// flags of pip that the set's id depends on.
var flags = []string{
	"install", "--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--no-color",
	"--progress-bar", "off", "--root-user-action", "ignore", "--no-warn-conflicts",
	"--retries", "2", "--timeout", "15", "-vv", // reports why a file does not fit the platform
	"--only-binary", ":all:", "--target", driver.Packages,
}

// order is the program's input.
type order struct {
	Target       string   `json:"target"`
	MaxBytes     int64    `json:"max_bytes"`
	MaxFiles     int      `json:"max_files"`
	Pip          []string `json:"pip"`
	Requirements []string `json:"requirements"`
}

// args returns the interpreter's arguments for an installation.
func (c Config) args(reqs Requirements) ([]string, error) {
	pip := append([]string{}, flags...)
	if c.Index != "" {
		pip = append(pip, "--index-url", c.Index)
	}
	if u, err := url.Parse(c.Index); err == nil && u.Scheme == "http" {
		pip = append(pip, "--trusted-host", u.Host)
	}
	if c.Proxy != "" {
		pip = append(pip, "--proxy", c.Proxy)
	}
	input, err := json.Marshal(order{
		Target: driver.Packages, MaxBytes: c.MaxBytes, MaxFiles: c.MaxFiles, Pip: pip, Requirements: reqs.Strings(),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the installation's input: %w", err)
	}
	return []string{"-I", "-B", "-c", program, string(input)}, nil
}

// Recognize returns an error unless the arguments are those of an installation with this configuration.
func (c Config) Recognize(args []string) error {
	var input struct {
		Requirements Requirements `json:"requirements"`
	}
	if len(args) == 0 || json.Unmarshal([]byte(args[len(args)-1]), &input) != nil || len(input.Requirements) == 0 ||
		len(input.Requirements) > MaxPackages {
		return fmt.Errorf("want the requirements of 1 to %d packages", MaxPackages)
	}
	want, err := c.withDefaults().args(input.Requirements)
	if err != nil {
		return err
	}
	if !slices.Equal(args, want) {
		return errors.New("these are not the arguments of an installation by this version, from the configured index")
	}
	return nil
}

// lines reads the program's output. It is the output of a sandbox: unknown lines are
// dropped, and everything is bounded.
type lines struct {
	progress func(string)
	mu       sync.Mutex
	reported int
	failure  *Error
	made     made
}

// made describes a set that was created.
type made struct {
	bytes    int64
	files    int
	packages []string // such as "numpy-2.1.0"
}

const (
	maxReported = 200 // lines of progress
	maxDetail   = 400 // bytes
)

var (
	step = regexp.MustCompile(`^(?:collecting [A-Za-z0-9._-]+|` +
		`downloading [A-Za-z0-9._+!-]+(?: \([0-9.]+ (?:bytes|[kMG]B)\))?|installing [0-9]+ packages|retrying|checking)$`)
	fail = regexp.MustCompile(`^failed ([a-z_]+): (.*)$`)
	done = regexp.MustCompile(`^done ([0-9]+) ([0-9]+) ([ -~]*)$`)
)

func (l *lines) line(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := fail.FindStringSubmatch(s); m != nil {
		l.failure = &Error{Code: code(m[1]), Detail: clean(m[2])}
	} else if m := done.FindStringSubmatch(s); m != nil {
		l.made.bytes, _ = strconv.ParseInt(m[1], 10, 64)
		l.made.files, _ = strconv.Atoi(m[2])
		l.made.packages = strings.Fields(m[3])
	} else if step.MatchString(s) && len(s) <= 200 && l.reported < maxReported {
		l.reported++
		l.progress(s)
	}
}

func code(s string) Code {
	if _, ok := explanations[Code(s)]; ok {
		return Code(s)
	}
	return Failed
}

// clean converts untrusted text to one short line of printable ASCII.
func clean(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// explain converts a driver's error: to an *Error if the packages or the index caused it,
// else it wraps the driver's error.
func (l *lines) explain(ctx context.Context, err error) error {
	var refused *driver.InstallError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Code: Timeout, err: err}
	case ctx.Err() != nil:
		return fmt.Errorf("installing packages: %w", context.Cause(ctx))
	case !errors.As(err, &refused):
		return fmt.Errorf("installing packages: %w", err)
	}
	for _, s := range refused.Output { // a driver may keep lines and forward none
		l.line(s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	said := strings.Join(refused.Output[max(0, len(refused.Output)-1):], "")
	switch {
	case l.failure != nil:
	case strings.Contains(said, "packages are larger than"): // the driver noticed it before the program did
		l.failure = &Error{Code: TooLarge}
	default:
		l.failure = &Error{Code: Failed, Detail: clean(strings.Join(refused.Output[max(0, len(refused.Output)-3):], "; "))}
	}
	l.failure.err = err
	return l.failure
}
