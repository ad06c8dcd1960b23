package deps

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one list of requirements.
const (
	MaxEntries    = 32  // entries
	MaxEntryBytes = 128 // bytes of one entry
)

// Requirement is one requested package, in canonical form. [Parse] and UnmarshalText create
// it; the zero value requests nothing.
type Requirement struct {
	name   string   // normalised as in PEP 503
	extras []string // likewise, sorted
	specs  []string // operator and version, sorted
}

// Requirements are requested packages, sorted by name, each name once.
type Requirements []Requirement

// Name returns the package's normalised name, such as "scikit-learn".
func (r Requirement) Name() string { return r.name }

// String returns the canonical form, such as "pandas[excel]<3,>=2.0". It is passed to pip.
func (r Requirement) String() string {
	s := r.name
	if len(r.extras) > 0 {
		s += "[" + strings.Join(r.extras, ",") + "]"
	}
	return s + strings.Join(r.specs, ",")
}

// MarshalText returns the canonical form.
func (r Requirement) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts the same entries as Parse.
func (r *Requirement) UnmarshalText(text []byte) error {
	req, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", quote(string(text)), err)
	}
	*r = req
	return nil
}

// Strings returns the canonical forms.
func (rs Requirements) Strings() []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.String()
	}
	return out
}

// EntryError is an entry that is not admitted.
type EntryError struct {
	Index int    // in the list
	Entry string // verbatim
	Why   string
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("dependencies[%d] %s: %s", e.Index, quote(e.Entry), e.Why)
}

// quote quotes untrusted text in printable ASCII, shortened.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// Parse parses the packages that a model requests: names in the syntax of PEP 508, with
// optional extras and versions. It returns the requirements in canonical form, or one
// [*EntryError] for each entry that is not admitted.
func Parse(list []string) (Requirements, []error) {
	if len(list) > MaxEntries {
		return nil, []error{
			fmt.Errorf("dependencies has %d entries, want at most %d: name the packages that the code imports; "+
				"their dependencies are installed automatically", len(list), MaxEntries),
		}
	}
	var errs []error
	out := Requirements{}
	first := map[string]int{}
	for i, entry := range list {
		r, err := parse(entry)
		if err != nil {
			errs = append(errs, &EntryError{Index: i, Entry: entry, Why: err.Error()})
			continue
		}
		at, again := first[r.name]
		switch {
		case !again:
			first[r.name] = i
			out = append(out, r)
		case out.named(r.name).String() != r.String():
			errs = append(errs,
				&EntryError{
					Index: i, Entry: entry,
					Why: fmt.Sprintf("duplicate of %s in dependencies[%d]; name a package once, with all its versions", r.name, at),
				})
		}
	}
	if errs != nil {
		return nil, errs
	}
	out.sort()
	return out, nil
}

func (rs Requirements) sort() {
	slices.SortFunc(rs, func(a, b Requirement) int { return cmp.Compare(a.name, b.name) })
}

func (rs Requirements) named(name string) Requirement {
	return rs[slices.IndexFunc(rs, func(r Requirement) bool { return r.name == name })]
}

// Merge adds newer requirements to older ones; a newer requirement replaces an older one of
// the same name.
func Merge(older, newer Requirements) Requirements {
	out := slices.Clone(newer)
	for _, r := range older {
		if !slices.ContainsFunc(newer, func(n Requirement) bool { return n.name == r.name }) {
			out = append(out, r)
		}
	}
	out.sort()
	return out
}

const admitted = `want a package's name, with optional extras and versions, ` +
	`such as "pandas", "pandas[excel]" or "pandas>=2.0,<3"`

// identifier is the syntax of names and extras in PEP 508. Both cases are spelled out,
// since (?i) also folds letters that are not ASCII.
const identifier = `[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`

var (
	shape     = regexp.MustCompile(`^ *(` + identifier + `) *(\[[^\[\]]*\])? *([=!<>~].*)?$`)
	extra     = regexp.MustCompile(`^ *(` + identifier + `) *$`)
	specifier = regexp.MustCompile(`^ *(===|==|!=|<=|>=|<|>|~=) *([^ ]+) *$`)
	separator = regexp.MustCompile(`[._-]+`)
	archive   = regexp.MustCompile(`\.(?:zip|whl|tar|tar\.[a-z0-9]+|tgz|tbz|tbz2|txz|tlz)$`)
)

// normalise is PEP 503's normalisation.
func normalise(name string) string { return strings.ToLower(separator.ReplaceAllString(name, "-")) }

// parse parses one entry. Its errors say what is wrong, and what would be right.
func parse(entry string) (Requirement, error) {
	if err := plain(entry); err != nil {
		return Requirement{}, err
	}
	m := shape.FindStringSubmatch(entry)
	if m == nil {
		return Requirement{}, errors.New("not a package name; " + admitted)
	}
	r := Requirement{name: normalise(m[1])}
	if m[2] != "" {
		extras, err := parseExtras(m[2][1 : len(m[2])-1])
		if err != nil {
			return Requirement{}, err
		}
		r.extras = extras
	}
	if m[3] != "" {
		specs, err := parseSpecifiers(m[3])
		if err != nil {
			return Requirement{}, err
		}
		r.specs = specs
	}
	// pip treats everything that ends like an archive as a path, even "x==1+a.zip".
	if archive.MatchString(r.String()) {
		return Requirement{}, errors.New("pip would read this as the path of an archive; " + admitted)
	}
	if len(r.String()) > MaxEntryBytes {
		return Requirement{}, fmt.Errorf("its canonical form has %d bytes, want at most %d", len(r.String()), MaxEntryBytes)
	}
	return r, nil
}

// plain refuses common mistakes of people and models with a reason; entries that it accepts
// must still match the syntax.
func plain(entry string) error {
	trimmed := strings.Trim(entry, " ")
	switch {
	case trimmed == "":
		return errors.New("it is empty; " + admitted)
	case len(entry) > MaxEntryBytes:
		return fmt.Errorf("it has %d bytes, want at most %d", len(entry), MaxEntryBytes)
	case strings.ContainsFunc(entry, func(c rune) bool { return c < ' ' || c > '~' }):
		return errors.New("it has characters other than printable ASCII; " + admitted)
	case trimmed[0] == '-':
		return errors.New("options are not admitted; " + admitted)
	case strings.Contains(entry, "://") || strings.Contains(entry, "@"):
		return errors.New("URLs are not admitted, packages are installed from the package index only; " + admitted)
	case strings.ContainsAny(entry, `/\`) || trimmed[0] == '.':
		return errors.New("paths are not admitted, packages are installed from the package index only; " + admitted)
	case strings.Contains(entry, ";"):
		return errors.New("environment markers are not admitted; " + admitted)
	case strings.Contains(entry, "#"):
		return errors.New("comments are not admitted; " + admitted)
	}
	return nil
}

func parseExtras(list string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		m := extra.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%s is not the name of an extra; %s", quote(part), admitted)
		}
		out = append(out, normalise(m[1]))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseSpecifiers(list string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		m := specifier.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%s is not a version; want one of == != <= >= < > ~= and a version, "+
				"comma-separated, such as \">=2.0,<3\"", quote(part))
		}
		version, err := parseVersion(m[1], m[2])
		if err != nil {
			return nil, err
		}
		out = append(out, m[1]+version)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
