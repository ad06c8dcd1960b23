package agent

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// The parts of the agent. They are one program in one namespace. agent.py is the last; its
// end runs the loop.
//
//go:embed *.py
var parts embed.FS

var source = sync.OnceValues(func() ([]byte, error) {
	var all []byte
	for _, name := range []string{
		"agent_child.py", "agent_python.py", "agent_search.py", "agent_archive.py", "agent_files.py", "agent_process.py",
		"agent_end.py", "agent.py",
	} {
		text, err := parts.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading the agent: %w", err)
		}
		all = append(append(all, text...), '\n')
	}
	return all, nil
})

// bootstrap reads the program to run from standard input, so any image with Python 3.9 or
// later works, and the agent never has another version than the service. It reads three
// blocks: a version of Python, the agent compiled by that version, and the hello. If the
// interpreter has another version, it asks for the source.
const bootstrap = `import marshal,posix,sys
def r(n):
 b=b""
 while len(b)<n:
  c=posix.read(0,n-len(b))
  if not c:posix._exit(0)
  b+=c
 return b
def f():return r(int.from_bytes(r(4),"big"))
t=f();d=f();h=f();v=sys.version.encode()
if t==v:c=marshal.loads(d)
else:
 def w(k,b):
  b=(len(b)+5).to_bytes(4,"big")+k+bytes(4)+b
  while b:b=b[posix.write(1,b):]
 w(b"v",v);c=compile(f(),"agent.py","exec",0,True,2);w(b"z",marshal.dumps(c))
exec(c,{"__name__":"agent","HELLO":h})
`

// Args returns the arguments for a sandbox's Python interpreter.
func Args() []string { return []string{"-I", "-S", "-B", "-c", bootstrap} }

// Config names the directories and limits of a sandbox.
type Config struct {
	Workspace string `json:"workspace"` // default /workspace
	Tmp       string `json:"tmp"`       // default /tmp
	Packages  string `json:"packages"`  // default /packages; need not exist
	// Limits are the rlimits of every run, by their names in lower case without RLIMIT_
	// ("nofile", "fsize", "as", "nproc"); "core" defaults to 0.
	Limits map[string]int64 `json:"limits"`
	// noPidfd makes the agent work without pidfds, as on kernels that lack them.
	noPidfd bool
}

func (p Config) withDefaults() Config {
	or := func(s, d string) string {
		if s == "" {
			return d
		}
		return s
	}
	p.Workspace, p.Tmp, p.Packages = or(p.Workspace, "/workspace"), or(p.Tmp, "/tmp"), or(p.Packages, "/packages")
	limits := map[string]int64{"core": 0}
	maps.Copy(limits, p.Limits)
	p.Limits = limits
	return p
}

// compiled caches the agent as interpreters compiled it, by their versions: compiling takes
// longer than everything else at a sandbox's start. The bytecode is from a sandbox in which
// only the agent has run, and runs only where the same interpreter would have compiled the
// source to the same.
var compiled struct {
	sync.Mutex
	last string
	code map[string][]byte
}

const maxCompiled = 8 // versions

func lastCompiled() (version string, code []byte) {
	compiled.Lock()
	defer compiled.Unlock()
	return compiled.last, compiled.code[compiled.last]
}

func keepCompiled(version string, code []byte) {
	compiled.Lock()
	defer compiled.Unlock()
	if compiled.code == nil || len(compiled.code) >= maxCompiled {
		compiled.code = map[string][]byte{}
	}
	compiled.code[version], compiled.last = code, version
}

// handOver sends the agent to the interpreter and waits for its ready frame.
func (c *Conn) handOver(ctx context.Context) error {
	hello, err := json.Marshal(struct {
		Config
		Pidfd bool `json:"pidfd"`
	}{c.place, !c.place.noPidfd})
	if err != nil {
		return fmt.Errorf("encoding the hello: %w", err)
	}
	version, code := lastCompiled()
	begin := append(append(block([]byte(version)), block(code)...), block(hello)...)
	if !c.send(ctx.Done(), begin) {
		return c.over(ctx)
	}
	f, err := c.next(ctx)
	if err == nil && f.kind == fromVersion {
		f, err = c.handSource(ctx, string(f.payload))
	}
	if err != nil {
		return err
	}
	var ready struct {
		Version int `json:"version"`
	}
	if f.kind != fromReady || decode(f.payload, &ready) != nil || ready.Version != 1 {
		return fmt.Errorf("the agent began with an unexpected frame of kind %q", f.kind)
	}
	return nil
}

// handSource sends the source to the interpreter and returns the next frame.
func (c *Conn) handSource(ctx context.Context, version string) (frame, error) {
	text, err := source()
	if err != nil {
		return frame{}, err
	}
	if !c.send(ctx.Done(), block(text)) {
		return frame{}, c.over(ctx)
	}
	f, err := c.next(ctx)
	if err != nil {
		return f, err
	}
	if f.kind != fromCompiled || version == "" {
		return f, errors.New("the interpreter did not compile the agent")
	}
	code := f.payload
	if f, err = c.next(ctx); err == nil && f.kind == fromReady && len(code) <= maxCode {
		keepCompiled(version, code)
	}
	return f, err
}

// next returns the next frame of the handshake.
func (c *Conn) next(ctx context.Context) (frame, error) {
	select {
	case f := <-c.hello:
		return f, nil
	case <-ctx.Done():
		return frame{}, ctx.Err()
	case <-c.done:
	}
	select {
	case f := <-c.hello: // it arrived before the end
		return f, nil
	default:
		return frame{}, c.Err()
	}
}

func (c *Conn) over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Err()
}
