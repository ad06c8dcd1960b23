package toolrunner

import (
	"context"

	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools"
)

// clients returns the connections to MCP servers, which are not made yet. Their specs may take a
// quarter of an announcement; those of plugins may take half.
func (r *runner) clients(deps Deps) *mcp.Group {
	var g *mcp.Group
	g = mcp.New(mcp.Options{
		StateDir: r.cfg.StateDir, Room: int(deps.Bus.MaxPayload() / 4), Wants: r.cfg.wants, Logger: deps.Logger,
		Refuses: func(dir string) error { return mcp.CheckRead(dir, r.cfg.protected(), r.cfg.WorkspaceDir) },
		Taken:   func(name string) bool { return r.remote.takes(name) },
		Changed: func() { r.offers.put(func(o *offering) { o.mcp = g.Specs() }) },
	})
	for _, t := range g.Reads() {
		v, err := toolschema.Compile(t.Spec)
		if err != nil {
			panic("toolrunner: " + err.Error()) // the schemas are ours
		}
		r.reads[t.Spec.Name] = offered{t, v}
	}
	return g
}

// callServer sends one attempt to an MCP server and returns its answer.
func (r *runner) callServer(ctx context.Context, c tools.Call, t *mcp.Tool) contract.Answer {
	args, errs := t.Args.Validate(c.Args)
	if errs != nil {
		return answer(r.limit(ctx, c, misfit(errs)))
	}
	c.Args = args
	res, err := t.Call(ctx, c)
	if err != nil {
		return engine.DidNotRun(err.Error())
	}
	return answer(r.limit(ctx, c, res))
}
