package rights

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"skandha.dev/pkg/subject"
)

// Declaration is schemas/rights.yaml, with the addresses of the channels.
type Declaration struct {
	// Channels are the addresses of all channels by name, such as runner.{instance}.
	Channels map[string]string   `json:"channels"`
	Groups   map[string][]string `json:"groups"`
	Services map[string]Part     `json:"services"`
	Charter  map[string]Part     `json:"charter"`
}

// Part is the rights of a service, or of a part of a charter.
type Part struct {
	Summary string `json:"summary" yaml:"summary"`
	// Asks says that it sends requests, and receives the answers.
	Asks      bool                `json:"asks,omitempty" yaml:"asks"`
	Answers   []string            `json:"answers,omitempty" yaml:"answers"` // responders as which it answers
	Publish   []string            `json:"publish,omitempty" yaml:"publish"`
	Subscribe []string            `json:"subscribe,omitempty" yaml:"subscribe"`
	Streams   map[string][]string `json:"streams,omitempty" yaml:"streams"`
	Buckets   map[string][]string `json:"buckets,omitempty" yaml:"buckets"`
	Objects   map[string][]string `json:"objects,omitempty" yaml:"objects"`
}

// bundle is written from schemas/rights.yaml and schemas/asyncapi.yaml by
// go test ./test/contract -run TestTheRightsAreCurrent -update.
//
//go:embed declaration.json
var bundle []byte

// Declared returns the declaration. It must not be changed.
var Declared = sync.OnceValue(func() *Declaration {
	var d Declaration
	if err := json.Unmarshal(bundle, &d); err != nil {
		panic(fmt.Sprintf("the rights that are built in cannot be read: %v", err))
	}
	return &d
})

// ServiceNames lists the services, sorted.
func (d *Declaration) ServiceNames() []string { return slices.Sorted(maps.Keys(d.Services)) }

// Permissions are subjects that may be published and subscribed, with wildcards; sorted.
type Permissions struct {
	Publish   []string
	Subscribe []string
}

// Process is the place of the key of a process in the permissions of a service. NATS replaces it.
const Process = "{{subject()}}"

// Service returns the permissions of a service's processes.
func (d *Declaration) Service(name string) (Permissions, error) {
	part, ok := d.Services[name]
	if !ok {
		return Permissions{}, fmt.Errorf("no service %q; want one of %s", name, strings.Join(d.ServiceNames(), ", "))
	}
	c := compiler{d: d, values: map[string][]string{"me": {name}, "instance": {Process}}}
	c.part(part)
	c.inbox()
	return c.permissions()
}

// compiler collects the permissions of parts.
type compiler struct {
	d                  *Declaration
	values             map[string][]string // of placeholders
	publish, subscribe map[string]bool
	err                error
}

func (c *compiler) permissions() (Permissions, error) {
	return Permissions{slices.Sorted(maps.Keys(c.publish)), slices.Sorted(maps.Keys(c.subscribe))}, c.err
}

func (c *compiler) pub(subjects ...string) { c.publish = add(c.publish, subjects) }
func (c *compiler) sub(subjects ...string) { c.subscribe = add(c.subscribe, subjects) }

func add(to map[string]bool, subjects []string) map[string]bool {
	if to == nil {
		to = map[string]bool{}
	}
	for _, s := range subjects {
		to[s] = true
	}
	return to
}

// inbox adds where the server answers.
func (c *compiler) inbox() {
	for _, process := range c.values["instance"] {
		c.sub("_INBOX." + process + ".>")
	}
}

func (c *compiler) part(p Part) {
	for _, right := range p.Publish {
		c.pub(c.subjects(right)...)
	}
	for _, right := range p.Subscribe {
		c.sub(c.subjects(right)...)
	}
	for _, responder := range p.Answers {
		c.pub(c.subjects("reply responder=" + responder)...)
		if responder == "core" || responder == "admin" {
			c.pub("_R_.>") // where the server wants the answers for other accounts
		}
	}
	if p.Asks {
		c.sub(c.subjects("reply caller=<me> instance=<instance>")...)
	}
	for name, verbs := range p.Streams {
		c.stream(name, name, "", verbs)
	}
	for name, verbs := range p.Buckets {
		c.stream(name, "KV_"+name, "$KV."+name+".>", verbs)
	}
	for name, verbs := range p.Objects {
		c.stream(name, "OBJ_"+name, "$O."+name+".>", verbs)
	}
}

// subjects are those of a right: a channel or a group, and values of its parameters.
func (c *compiler) subjects(right string) []string {
	fields := strings.Fields(right)
	channels, ok := c.d.Groups[fields[0]]
	if !ok {
		channels = fields[:1]
	}
	var out []string
	for _, name := range channels {
		address, ok := c.d.Channels[name]
		if !ok {
			c.fail("right %q: no channel or group %q", right, name)
			continue
		}
		out = append(out, c.fill(right, address, fields[1:])...)
	}
	return out
}

// fill sets the parameters of an address; others are free.
func (c *compiler) fill(right, address string, params []string) []string {
	out := []string{address}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		if !strings.Contains(address, "{"+name+"}") {
			c.fail("right %q: %s has no parameter %s", right, address, name)
		}
		out = c.each(right, out, "{"+name+"}", value)
	}
	for i, s := range out {
		out[i] = parameter.ReplaceAllString(s, "*")
	}
	return out
}

// parameter is a parameter of an address. [Process] is none.
var parameter = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// each replaces a parameter by its value, or by all values of a placeholder.
func (c *compiler) each(right string, addresses []string, param, value string) (out []string) {
	values := []string{value}
	if name, ok := strings.CutPrefix(value, "<"); ok {
		name = strings.TrimSuffix(name, ">")
		if values, ok = c.values[name]; !ok {
			c.fail("right %q: nothing is known of <%s>", right, name)
		}
	}
	for _, a := range addresses {
		for _, v := range values {
			out = append(out, strings.ReplaceAll(a, param, v))
		}
	}
	return out
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("rights: "+format, args...)
	}
}

// stream adds what verbs allow with a stream that stores the subjects.
func (c *compiler) stream(name, stream, subjects string, verbs []string) {
	api := "$JS.API."
	for _, verb := range verbs {
		switch verb, arg, _ := strings.Cut(verb, " "); verb {
		case "info":
			c.pub(api + "STREAM.INFO." + stream)
		case "setup":
			c.pub(api+"STREAM.INFO."+stream, api+"STREAM.CREATE."+stream, api+"STREAM.UPDATE."+stream)
		case "read":
			c.pub(api+"STREAM.INFO."+stream, api+"DIRECT.GET."+stream, api+"DIRECT.GET."+stream+".>")
		case "leader":
			c.pub(api + "STREAM.MSG.GET." + stream)
		case "store":
			if subjects == "" {
				c.fail("%s: store names no subjects; name its channels", name)
			}
			c.pub(subjects)
		case "purge":
			c.pub(api + "STREAM.PURGE." + stream)
		case "diagnose":
			c.pub(api + "STREAM.MSG.DELETE." + stream)
		case "advise":
			c.sub("$JS.EVENT.ADVISORY.STREAM.UPDATED." + stream)
		case "backup":
			c.pub(api+"STREAM.LIST", api+"STREAM.NAMES", api+"STREAM.INFO."+stream, api+"STREAM.SNAPSHOT."+stream,
				api+"STREAM.RESTORE."+stream, api+"STREAM.DELETE."+stream, api+"CONSUMER.LIST."+stream,
				api+"CONSUMER.INFO."+stream+".*", api+"CONSUMER.DELETE."+stream+".*", "$JS.SNAPSHOT.>")
		case "follow":
			c.sub(subject.BucketChanges(name))
		case "get":
			c.pub(api+"STREAM.INFO."+stream, api+"STREAM.MSG.GET."+stream, api+"DIRECT.GET."+stream, api+"DIRECT.GET."+stream+".>")
		case "put":
			c.pub(subjects)
		case "consume":
			c.pub(api+"CONSUMER.INFO."+stream+"."+arg, api+"CONSUMER.CREATE."+stream+"."+arg,
				api+"CONSUMER.CREATE."+stream+"."+arg+".>", api+"CONSUMER.MSG.NEXT."+stream+"."+arg, "$JS.ACK."+stream+"."+arg+".>")
		default:
			c.fail("%s: unknown verb %q", name, verb)
		}
	}
}
