package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Problem is one thing that is wrong with a manifest.
type Problem struct {
	Path    string // e.g. "tools[1].name"; empty for the manifest as a whole
	Message string // what is wrong, and what is expected
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Problems is an error that lists everything that is wrong with a manifest.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "; ")
}

// At reports whether one of the problems is at the path, or at an object or list that
// contains it.
func (p Problems) At(path string) bool {
	return slices.ContainsFunc(p, func(one Problem) bool {
		rest, ok := strings.CutPrefix(path, one.Path)
		return ok && one.Path != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Hash returns the SHA-256 of the manifest without Instance, in hexadecimal. All replicas of
// a plugin have the same hash.
func (m Manifest) Hash() string {
	m.Instance = ""
	b, err := json.Marshal(m)
	if err != nil {
		return "" // a schema in it is not JSON: Check rejects it
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// The limits of a manifest.
const (
	MaxDeadlineMS  = 60_000
	MaxDescription = 4096      // characters
	MaxManifest    = 256 << 10 // bytes, encoded
)

// semver is the regular expression of semver.org, as in schemas/manifest.v1.json.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?` +
	`(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`)

// Check reports everything that is wrong with the manifest itself, without knowledge of
// other plugins. The error is nil or a [Problems].
func (m Manifest) Check() error {
	c := &checker{}
	check[subject.Plugin](c, "name", string(m.Name))
	check[subject.Instance](c, "instance", string(m.Instance))
	if len(m.Version) > 128 || !semver.MatchString(m.Version) {
		c.add("version", "%q is not a SemVer 2.0.0 version such as 1.0.0", clip(m.Version))
	}
	if n := utf8.RuneCountInString(m.Description); n > MaxDescription {
		c.add("description", "has %d characters, at most %d", n, MaxDescription)
	}
	c.others("dependencies", m.Name, m.Dependencies)
	c.others("run_after", m.Name, m.RunAfter)
	c.others("run_before", m.Name, m.RunBefore)
	c.hooks(m.Hooks)
	c.tools(m.Tools)
	c.deliverers(m)
	c.rest(m)
	if b, err := json.Marshal(m); err == nil && len(b) > MaxManifest {
		c.add("", "the manifest has %d bytes, at most %d", len(b), MaxManifest)
	}
	if len(c.found) > 0 {
		return c.found
	}
	return nil
}

type checker struct{ found Problems }

func (c *checker) add(path, format string, args ...any) {
	c.found = append(c.found, Problem{path, fmt.Sprintf(format, args...)})
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

func check[T subject.Plugin | subject.Instance | subject.Writer](c *checker, path, s string) {
	switch {
	case s == "":
		c.add(path, "is missing")
	case !subject.Valid(s):
		c.add(path, "%q is not a valid id: want 1 to %d characters of A-Z a-z 0-9 _ -", clip(s), subject.MaxIDLen)
	}
}

func (c *checker) others(field string, self subject.Plugin, list []subject.Plugin) {
	for i, p := range list {
		path := fmt.Sprintf("%s[%d]", field, i)
		check[subject.Plugin](c, path, string(p))
		if p == self {
			c.add(path, "is the plugin itself")
		}
		if slices.Contains(list[:i], p) {
			c.add(path, "duplicate %q", p)
		}
	}
}

func (c *checker) hooks(list []Hook) {
	seen := map[hook.Point]bool{}
	for i, h := range list {
		at := fmt.Sprintf("hooks[%d].", i)
		if !slices.Contains(hook.Points(), h.Point) {
			c.add(at+"point", "unknown hook point %q; want one of %v", clip(string(h.Point)), hook.Points())
		} else if seen[h.Point] {
			c.add(at+"point", "duplicate %q", h.Point)
		}
		seen[h.Point] = true
		if h.Mode != "" && h.Mode != hook.Chain && h.Mode != hook.Parallel {
			c.add(at+"mode", "unknown mode %q; want %s or %s", clip(string(h.Mode)), hook.Chain, hook.Parallel)
		}
		if h.OnError != "" && h.OnError != hook.Allow && h.OnError != hook.Deny {
			c.add(at+"on_error", "unknown rule %q; want %s or %s", clip(string(h.OnError)), hook.Allow, hook.Deny)
		} else if h.OnError == hook.Deny && slices.Contains(hook.Points(), h.Point) && !h.Point.Deniable() {
			c.add(at+"on_error", "is deny, but nothing can be denied at %s", h.Point)
		}
		if h.DeadlineMS < 0 || h.DeadlineMS > MaxDeadlineMS {
			c.add(at+"deadline_ms", "is %d, want 1 to %d, or 0 for the default", h.DeadlineMS, MaxDeadlineMS)
		}
	}
}

func (c *checker) tools(list []tool.Spec) {
	seen := map[string]bool{}
	for i, t := range list {
		at := fmt.Sprintf("tools[%d].", i)
		c.name(at+"name", t.Name, tool.FoldName(t.Name), seen)
		if err := tool.CheckName(t.Name); err != nil && t.Name != "" {
			c.add(at+"name", "%v", err)
		}
		if len(subject.Encode(t.Name)) > subject.MaxIDLen {
			c.add(at+"name", "has %d bytes when encoded, at most %d", len(subject.Encode(t.Name)), subject.MaxIDLen)
		}
		if t.Description == "" {
			c.add(at+"description", "is missing: the model needs it")
		}
		if t.Plugin != "" {
			c.add(at+"plugin", "must be absent: the tool runner sets it")
		}
		if t.Risk != "" && !slices.Contains([]tool.Risk{tool.RiskLow, tool.RiskMedium, tool.RiskHigh}, t.Risk) {
			c.add(at+"risk", "unknown risk %q; want low, medium or high", clip(string(t.Risk)))
		}
		if t.TimeoutMS < 0 || t.TimeoutMS > tool.MaxTimeout.Milliseconds() {
			c.add(at+"timeout_ms", "is %d, want 1 to %d, or 0 for the default", t.TimeoutMS, tool.MaxTimeout.Milliseconds())
		}
		for j, tag := range t.ScenarioTags {
			if !slices.Contains(tool.Scenarios(), tag) {
				c.add(fmt.Sprintf("%sscenario_tags[%d]", at, j), "unknown scenario %q; want one of %v", clip(tag), tool.Scenarios())
			}
		}
		c.duplicates(at+"scenario_tags", t.ScenarioTags)
		for j, p := range t.Permissions {
			if p == "" {
				c.add(fmt.Sprintf("%spermissions[%d]", at, j), "is empty")
			}
		}
		c.duplicates(at+"permissions", t.Permissions)
		for j, a := range t.Scope {
			if a == "" {
				c.add(fmt.Sprintf("%sscope[%d]", at, j), "is empty, want the name of an argument")
			}
		}
		if n := len(t.Scope); n > maxScope {
			c.add(at+"scope", "has %d names, at most %d", n, maxScope)
		}
		c.duplicates(at+"scope", t.Scope)
		if n := utf8.RuneCountInString(t.Pool); n > maxName {
			c.add(at+"pool", "has %d characters, at most %d", n, maxName)
		}
		c.args(at+"args", t.Args)
	}
}

// deliverers checks the tools that deliver messages: they belong to the plugin's listeners, and
// models cannot call them.
func (c *checker) deliverers(m Manifest) {
	for i, t := range m.Tools {
		of, delivers := strings.CutPrefix(tool.FoldName(t.Name), tool.DeliverPrefix)
		if !delivers {
			continue
		}
		mine := slices.ContainsFunc(slices.Concat(m.Listeners, m.Sensors), func(l Listener) bool {
			return tool.Deliverer(l.Name) == t.Name
		})
		if !mine {
			c.add(fmt.Sprintf("tools[%d].name", i), "%q delivers for a listener %q, which the plugin does not declare", clip(t.Name), clip(of))
		}
		if !t.Internal {
			c.add(fmt.Sprintf("tools[%d].internal", i), "is false, want true: only the outbox calls a tool that delivers")
		}
	}
}

// args checks only the outermost object of a tool's schema. The rest is checked when the
// schema is compiled, see services/internal/toolschema.
func (c *checker) args(path string, schema json.RawMessage) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(schema, &args); err != nil || args == nil {
		c.add(path, `is not a JSON Schema of an object, such as {"type": "object"}`)
		return
	}
	var typ any
	if len(args["type"]) > 0 && json.Unmarshal(args["type"], &typ) == nil {
		// A bare map of properties may have one with the name type.
		if _, property := typ.(map[string]any); typ != "object" && !property {
			c.add(path+".type", `is %s, want "object"`, clip(string(args["type"])))
		}
	}
}

func (c *checker) duplicates(path string, list []string) {
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			c.add(fmt.Sprintf("%s[%d]", path, i), "duplicate %q", clip(s))
		}
	}
}

// maxName is the maximum length of the names of guides and pools, in characters.
const maxName = 64

// maxScope is how many arguments the scope of a tool may name.
const maxScope = 8

// name checks that a name is present, and that no earlier one has the same key.
func (c *checker) name(path, name, key string, seen map[string]bool) {
	switch {
	case name == "":
		c.add(path, "is missing")
	case seen[key]:
		c.add(path, "duplicate %q", clip(name))
	}
	seen[key] = true
}

func (c *checker) rest(m Manifest) {
	providers, guides, writers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, p := range m.Providers {
		c.name(fmt.Sprintf("providers[%d].name", i), p.Name, p.Name, providers)
	}
	for i, g := range m.Guides {
		path := fmt.Sprintf("guides[%d]", i)
		c.name(path, g, g, guides)
		if n := utf8.RuneCountInString(g); n > maxName {
			c.add(path, "has %d characters, at most %d", n, maxName)
		}
	}
	for _, f := range []struct {
		field string
		list  []Listener
	}{{"listeners", m.Listeners}, {"sensors", m.Sensors}} {
		field, list := f.field, f.list
		for i, l := range list {
			path := fmt.Sprintf("%s[%d].name", field, i)
			c.name(path, string(l.Name), string(l.Name), writers)
			if l.Name != "" {
				check[subject.Writer](c, path, string(l.Name))
			}
			if subject.OwnWriter(l.Name) {
				c.add(path, "%q is reserved for core", l.Name)
			}
		}
	}
	if m.Storage == nil {
		return
	}
	if m.Storage.Verbs == nil && !m.Storage.Index {
		c.add("storage.verbs", "is missing, and index is not true")
	} else if len(m.Storage.Verbs) == 0 && !m.Storage.Index {
		c.add("storage.verbs", "is empty, and index is not true")
	}
	for i, v := range m.Storage.Verbs {
		path := fmt.Sprintf("storage.verbs[%d]", i)
		if !slices.Contains([]StorageVerb{Put, Get, Delete, Search}, v) {
			c.add(path, "unknown verb %q; want put, get, delete or search", clip(string(v)))
		}
		if slices.Contains(m.Storage.Verbs[:i], v) {
			c.add(path, "duplicate %q", v)
		}
	}
}
