package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/scaffold"
	"skandha.dev/services/skandha/system"
)

// charterFlags are the parts of a charter.
type charterFlags struct {
	Hooks     []string `help:"Hook points at which it may be asked, separated by commas; * for all. POINT:judge lets it deny, have a person asked and fail closed, too; POINT:observe lets it change nothing." placeholder:"POINT,…"`
	Tools     []string `help:"Namespaces of its tools, which come before the colon of their names; * for all." placeholder:"NAME,…"`
	Providers []string `help:"Its language models; * for all." placeholder:"NAME,…"`
	Storage   bool     `help:"It may keep notes, or an index of memories."`
	Guides    bool     `help:"It may supply guides."`
	Listener  []string `help:"Writers as which it may send inputs; it reads the answers to these." placeholder:"NAME,…"`
	Agent     []string `help:"Agents that it may talk to, follow and see, and that may use its hooks, tools, models and guides. Default: all." placeholder:"NAME,…"`
	Session   []string `help:"Sessions of the agents that it may follow, and to which a listener may send. A listener's default: one that has its name. *: it follows none and may send to all, also to those of people." placeholder:"NAME,…"`
	See       bool     `help:"It sees all that happens with the agents, and may ask core which tools, plugins and executors there are."`
	Order     bool     `help:"Its manifest may set its priority, and whom it runs before and after."`
	Expires   lifetime `help:"How long its credentials are valid, such as 12h or 30d. Default: for ever." placeholder:"DURATION"`
}

func (f charterFlags) charter(name string) rights.Charter {
	c := rights.Charter{
		Name: subject.Identity(name), Hooks: f.Hooks, Tools: f.Tools, Providers: f.Providers, Storage: f.Storage, Guides: f.Guides,
		Listeners: ids[subject.Writer](f.Listener), Agents: ids[subject.Agent](f.Agent),
		Sessions: ids[subject.Session](f.Session), See: f.See, Order: f.Order,
	}
	switch {
	case len(f.Listener) == 0:
	case len(f.Session) == 0:
		c.Sessions = ids[subject.Session](f.Listener)
	case slices.Equal(f.Session, []string{rights.Any}):
		c.Sessions = nil
	}
	if f.Expires > 0 {
		c.Expires = time.Now().Add(time.Duration(f.Expires)).UTC().Truncate(time.Second)
	}
	return c
}

func ids[T ~string](names []string) (out []T) {
	for _, n := range names {
		out = append(out, T(n))
	}
	return out
}

// lifetime is a duration, in days, too.
type lifetime time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *lifetime) UnmarshalText(text []byte) error {
	s := string(text)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			*l = lifetime(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: want a duration such as 12h or 30d", s)
	}
	*l = lifetime(d)
	return nil
}

// outputFlags say in which form credentials are printed.
type outputFlags struct {
	For    string `enum:"env,compose,file,go,node,perl,python,shell" default:"env" help:"What is printed: env: shell commands that set SKANDHA_NATS. compose: an environment for a service of compose. file: a credentials file as clients of NATS read it. go, node, perl, python, shell: a program that joins the bus, with the credentials in it."`
	Bearer bool   `help:"With --for file: a token that needs no signature, for programs that cannot sign with Ed25519. env and compose have such a token always." hidden:""`
	At     string `placeholder:"URL" help:"Address of the bus for its programs. Default: the one that this command uses; from the containers of docker-compose.yml, the one of this machine; for compose, nats:4222 instead of a loopback address."`
	Out    string `placeholder:"FILE" help:"Write it to a new file, which only you may read, instead of printing it."`
}

// check fails if the credentials could not be written: they are made once.
func (o outputFlags) check() error {
	if _, err := os.Lstat(o.Out); o.Out != "" && err == nil {
		return fmt.Errorf("--out: %s exists; name a new file, or remove it", o.Out)
	}
	if o.For == "node" && filepath.Ext(o.Out) == ".mjs" {
		return fmt.Errorf("--out: %s: the program is no ECMAScript module; name it .js", o.Out)
	}
	return nil
}

// snippet reports whether a program is printed.
func (o outputFlags) snippet() bool { return slices.Contains(scaffold.SnippetLanguages(), o.For) }

func (o outputFlags) bearer() bool { return o.For != "file" }

type pluginsInviteCmd struct {
	Name string `arg:"" help:"Name of the plugin, listener or program."`
	charterFlags
	Replace bool `help:"If it was invited already, give it this charter. Its credentials stay valid."`
	outputFlags
}

// Run implements the command.
func (i *pluginsInviteCmd) Run(ctx context.Context, g *globals) error {
	c := i.charter(i.Name)
	if err := i.check(); err != nil {
		return err
	}
	if i.snippet() {
		if _, err := i.text(g, c, coreapi.Credential{Token: "TOKEN"}); err != nil {
			return err // before it is invited
		}
	}
	page, err := identities(ctx, g, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityInvite, Charter: &c, Replace: i.Replace, Bearer: i.bearer(), Caller: writer(),
	})
	if err != nil {
		return err
	}
	return i.print(g, i.Name, page)
}

type pluginsRotateCmd struct {
	Name    string   `arg:"" help:"Of the identity."`
	Overlap lifetime `default:"1h" help:"How long the old credentials stay valid, such as 10m or 1d." placeholder:"DURATION"`
	outputFlags
}

// Run implements the command.
func (r *pluginsRotateCmd) Run(ctx context.Context, g *globals) error {
	if err := r.check(); err != nil {
		return err
	}
	page, err := identities(ctx, g, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityRotate, Name: subject.Identity(r.Name), Bearer: r.bearer(), Caller: writer(),
		OverlapS: int64(time.Duration(r.Overlap).Seconds()),
	})
	if err != nil {
		return err
	}
	return r.print(g, r.Name, page)
}

type pluginsRevokeCmd struct {
	Name string `arg:"" help:"Of the identity."`
}

// Run implements the command.
func (r *pluginsRevokeCmd) Run(ctx context.Context, g *globals) error {
	_, err := identities(ctx, g, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityRevoke, Name: subject.Identity(r.Name), Caller: writer(),
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s is revoked: its connections are closed, its credentials are invalid\n", r.Name)
	return nil
}

type pluginsIdentitiesCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (i *pluginsIdentitiesCmd) Run(ctx context.Context, g *globals) error {
	page, err := identities(ctx, g, coreapi.IdentitiesQuery{Caller: writer()})
	if err != nil {
		return err
	}
	if i.JSON {
		return printJSON(os.Stdout, page, true)
	}
	return printIdentities(os.Stdout, page, time.Now())
}

// identities asks core about identities, or to change one.
func identities(ctx context.Context, g *globals, q coreapi.IdentitiesQuery) (page coreapi.IdentitiesPage, err error) {
	err = administer(ctx, g, coreapi.VerbIdentities, q, &page)
	return page, err
}

func printIdentities(out io.Writer, page coreapi.IdentitiesPage, now time.Time) error {
	if !page.Rights {
		_, err := fmt.Fprintln(out, "The bus of this system enforces no rights: who has its token may do everything.")
		return err
	}
	if len(page.Identities) == 0 {
		_, err := fmt.Fprintf(out, "Nobody is invited. %s plugins invite NAME invites a plugin or listener.\n", buildinfo.Command())
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "IDENTITY\tSTATE\tINVITED\tBY\tEXPIRES\tSEEN\tMAY")
	for _, id := range page.Identities {
		expires := "never"
		if at := id.Charter.Expires; !at.IsZero() {
			expires = at.Local().Format("2006-01-02 15:04")
		}
		state := string(id.State)
		if !id.Muted.IsZero() {
			state = "muted"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", id.Charter.Name, state, id.Invited.Local().Format("2006-01-02 15:04"),
			line(string(id.By), 40), expires, seen(id, now), line(may(id.Charter), 200))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, id := range page.Identities {
		if r := id.Refused; r != nil {
			_, _ = fmt.Fprintf(out, "%s was refused %s ago: %s\n", id.Charter.Name, now.Sub(r.At).Round(time.Second), line(r.Cause, 400))
		}
	}
	return nil
}

func seen(id coreapi.Identity, now time.Time) string {
	switch {
	case id.Connected > 0:
		return "connected"
	case id.Seen.IsZero():
		return "not yet"
	}
	return now.Sub(id.Seen).Round(time.Second).String() + " ago"
}

// may says what a charter grants, as the flags of invite.
func may(c rights.Charter) string {
	var out []string
	list := func(flag string, values []string) {
		if len(values) > 0 {
			out = append(out, "--"+flag+" "+strings.Join(values, ","))
		}
	}
	list("hooks", c.Hooks)
	list("tools", c.Tools)
	list("providers", c.Providers)
	list("listener", names(c.Listeners))
	list("agent", names(c.Agents))
	if len(c.Listeners) > 0 && len(c.Sessions) == 0 {
		list("session", []string{"'*'"})
	}
	list("session", names(c.Sessions))
	for _, f := range []struct {
		flag string
		set  bool
	}{{"--storage", c.Storage}, {"--guides", c.Guides}, {"--see", c.See}, {"--order", c.Order}} {
		if f.set {
			out = append(out, f.flag)
		}
	}
	return strings.Join(out, " ")
}

func names[T ~string](ids []T) (out []string) {
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

// print prints the credentials of a page.
func (o outputFlags) print(g *globals, name string, page coreapi.IdentitiesPage) error {
	if page.Credentials == nil {
		return errors.New("core has answered without credentials")
	}
	i := slices.IndexFunc(page.Identities, func(id coreapi.Identity) bool { return string(id.Charter.Name) == name })
	if i < 0 {
		return errors.New("core has answered without the charter")
	}
	text, err := o.text(g, page.Identities[i].Charter, *page.Credentials)
	if err != nil {
		return err
	}
	if o.Out == "" {
		_, err = os.Stdout.WriteString(text)
		return err
	}
	f, err := os.OpenFile(o.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	fmt.Fprintf(os.Stderr, "The credentials of %s are in %s.\n", name, o.Out)
	return nil
}

func (o outputFlags) text(g *globals, charter rights.Charter, c coreapi.Credential) (string, error) {
	at, data, err := g.bus()
	if err != nil {
		return "", err
	}
	switch {
	case o.At != "":
		at = o.At
	case o.For == "compose" && g.NATS != "":
		if at, err = inside(g.NATS); err != nil {
			return "", err
		}
	}
	switch o.For {
	case "file":
		fmt.Fprintf(os.Stderr, "They are for the bus at SKANDHA_NATS=%s; SKANDHA_CREDS names their file.\n", at)
		return c.Creds, nil
	case "compose":
		line, err := withToken(at, c.Token)
		return "# The environment of a service of compose that is " + string(charter.Name) + " on the bus.\nenvironment:\n  SKANDHA_NATS: " +
			strconv.Quote(line) + "\n", err
	}
	if o.snippet() {
		return scaffold.Snippet(o.For, scaffold.Invited{Charter: charter, Bus: at, Token: c.Token, File: o.Out})
	}
	if o.At != "" {
		data = ""
	}
	line, err := exportLine(at, c.Token, data)
	return line + "\n", err
}

// bus returns the URL of the bus without a token, as those outside of containers reach it, and the system's data
// directory if it is here.
func (g *globals) bus() (at, data string, err error) {
	if g.NATS != "" {
		u, err := parseBus(cmp.Or(g.Outer, g.NATS))
		if err != nil {
			return "", "", err
		}
		return u.String(), "", nil
	}
	run, err := system.Running(g.Data)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", g.noSystem()
	}
	if err != nil {
		return "", "", err
	}
	data, err = filepath.Abs(g.Data)
	return run.URL, data, err
}

// composeBus is the name of the bus among the services of docker-compose.yml, and its port there.
const composeBus = "nats:4222"

// inside returns the URL of a bus without a token, as a container reaches it: on loopback there is the container
// alone, so that of this machine is the one of docker-compose.yml.
func inside(at string) (string, error) {
	u, err := parseBus(at)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		u.Host = composeBus
	}
	return u.String(), nil
}

// parseBus parses the URL of the bus, and removes a token.
func parseBus(at string) (*url.URL, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("invalid URL of the bus: %w", errors.Unwrap(err)) // the whole error could show a token
	}
	u.User = nil
	return u, nil
}

func withToken(at, token string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", fmt.Errorf("invalid URL of the bus: %w", errors.Unwrap(err))
	}
	if token != "" && u.User == nil {
		u.User = url.User(token)
	}
	return u.String(), nil
}

// joined returns the token of a local plugin or listener, with a charter, or if it is nil that which it has, or
// [rights.Local]; ok is false if the bus has no rights.
func joined(ctx context.Context, g *globals, name string, charter *rights.Charter) (token string, ok bool, err error) {
	page, err := identities(ctx, g, coreapi.IdentitiesQuery{Caller: writer()})
	if err != nil || !page.Rights {
		return "", false, err
	}
	c := rights.Local(subject.Identity(name))
	i := slices.IndexFunc(page.Identities, func(id coreapi.Identity) bool { return string(id.Charter.Name) == name })
	switch {
	case i < 0:
	case page.Identities[i].State == coreapi.IdentityRevoked:
		return "", false, fmt.Errorf("%s was revoked at %s; to invite it again, use %s plugins invite %s", name,
			page.Identities[i].Ended.Local().Format("2006-01-02 15:04"), buildinfo.Command(), name)
	case charter == nil && page.Identities[i].State == coreapi.IdentityActive:
		c = page.Identities[i].Charter // it stays as it is
	}
	if charter != nil {
		c = *charter
	}
	page, err = identities(ctx, g, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityInvite, Charter: &c, Replace: true, Bearer: true, Caller: writer(),
	})
	if err != nil {
		return "", false, err
	}
	if page.Credentials == nil {
		return "", false, bus.Errorf(bus.CodeInternal, "core has answered without credentials")
	}
	return page.Credentials.Token, true, nil
}
