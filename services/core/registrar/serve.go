package registrar

import (
	"context"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

// decode reads a body strictly.
func decode(body []byte, what string, v any) error {
	if err := strictjson.Decode(body, v); err != nil {
		return bus.Errorf(bus.CodeInvalidArgument, "%s is invalid: %s", what, err)
	}
	return nil
}

func (r *Registrar) serveRegister(q *bus.Request) (any, error) {
	_, name, err := subject.ParseRegistry(q.Subject)
	if err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	m, invalid := r.inspect(q.Data, name)
	if len(invalid) == 0 {
		refused, err := r.cfg.Refuse(q.Context(), m)
		if err != nil {
			return nil, fmt.Errorf("the charter of %s: %w", name, err)
		}
		if len(refused) > 0 {
			return nil, bus.Errorf(bus.CodeDenied, "the manifest is refused: %v", refused)
		}
	}
	if m.Name == "" {
		return nil, (&refusal{invalid: invalid}).err() // without a name, conflicts cannot be checked
	}
	ctx, cancel := bounded(q.Context())
	defer cancel()
	l, err := r.register(ctx, m, invalid)
	if err != nil {
		r.log.Info("refused to register a plugin", "plugin", name, "error", err)
		return nil, fmt.Errorf("registering plugin %s: %w", name, err)
	}
	return l, nil
}

func (r *Registrar) serveHeartbeat(q *bus.Request) (any, error) {
	var h plugin.Heartbeat
	name, err := readReplica(q, "the heartbeat", &h, &h.Instance)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(q.Context())
	defer cancel()
	return r.heartbeat(ctx, name, h)
}

func (r *Registrar) serveUnregister(q *bus.Request) (any, error) {
	var u plugin.Unregister
	name, err := readReplica(q, "the request to unregister", &u, &u.Instance)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(q.Context())
	defer cancel()
	l, err := r.unregister(ctx, name, u)
	if err != nil {
		return nil, fmt.Errorf("unregistering %s of plugin %s: %w", u.Instance, name, err)
	}
	return l, nil
}

// readReplica reads a request about a replica of the plugin that its subject names. It keeps
// invalid ids out of the bucket's keys.
func readReplica(q *bus.Request, what string, body any, i *subject.Instance) (subject.Plugin, error) {
	_, name, err := subject.ParseRegistry(q.Subject)
	if err != nil {
		return "", bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	if err := decode(q.Data, what, body); err != nil {
		return "", err
	}
	if _, err := subject.Parse[subject.Instance](string(*i)); err != nil {
		return "", bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	return name, nil
}

func (r *Registrar) servePlugins(*bus.Request) (any, error) {
	return Infos(r.view.Snapshot()), nil
}

func (r *Registrar) servePlugin(q *bus.Request) (any, error) {
	var ask PluginRequest
	if err := decode(q.Data, "the request", &ask); err != nil {
		return nil, err
	}
	if _, err := subject.Parse[subject.Plugin](string(ask.Plugin)); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	ctx, cancel := bounded(q.Context())
	defer cancel()
	if err := r.cfg.Operate(q, ask, func() error { return r.operate(ctx, ask) }); err != nil {
		return nil, fmt.Errorf("%s of plugin %s: %w", ask.Op, ask.Plugin, err)
	}
	for _, info := range Infos(r.view.Snapshot()) {
		if info.Name == ask.Plugin {
			return info, nil
		}
	}
	return nil, unknown(ask.Plugin)
}

func (r *Registrar) operate(ctx context.Context, ask PluginRequest) (err error) {
	switch ask.Op {
	case OpSuspend:
		_, err = r.Suspend(ctx, ask.Plugin, ask.Reason, registry.ByOperator)
	case OpResume:
		_, err = r.Resume(ctx, ask.Plugin)
	case OpUnload:
		err = r.Unload(ctx, ask.Plugin, ask.Force, ask.Reason)
	default:
		err = bus.Errorf(bus.CodeInvalidArgument, "unknown op %q; want %s, %s or %s", ask.Op, OpSuspend, OpResume, OpUnload)
	}
	return err
}
