package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/tool"
)

// declare prints the hooks that the handlers declare in the manifest of a plugin.
func declare(h ...plugin.Handler) {
	m, err := plugin.Handlers(h).Complete(plugin.Manifest{Name: "example", Version: "1.0.0"})
	if err != nil {
		fmt.Println(err)
	}
	for _, one := range m.Hooks {
		fmt.Printf("%s mode=%q deadline_ms=%d on_error=%q\n", one.Point, one.Mode, one.DeadlineMS, one.OnError)
	}
}

// An observer hears of something and changes nothing.
func ExampleOnAgentStart() {
	declare(plugin.OnAgentStart(func(_ context.Context, c *plugin.HookCall[hook.AgentData]) error {
		fmt.Println("a core serves", c.Agent)
		return nil
	}))
	// Output: on_agent_start mode="" deadline_ms=0 on_error=""
}

func ExampleOnAgentStop() {
	declare(plugin.OnAgentStop(func(_ context.Context, c *plugin.HookCall[hook.AgentData]) error {
		fmt.Println(c.Data.Instance, "no longer serves", c.Agent)
		return nil
	}))
	// Output: on_agent_stop mode="" deadline_ms=0 on_error=""
}

// A handler is a function: a test calls it and compares the reply.
func ExampleBeforeSense() {
	trim := func(_ context.Context, c *plugin.HookCall[hook.SenseData]) (plugin.Reply, error) {
		data := c.Data
		data.Text = strings.TrimSpace(data.Text)
		return plugin.Replace(data), nil
	}
	declare(plugin.BeforeSense(trim))
	reply, err := trim(context.Background(), &plugin.HookCall[hook.SenseData]{Data: hook.SenseData{Text: " hello "}})
	fmt.Println(reply == plugin.Replace(hook.SenseData{Text: "hello"}), err)
	// Output:
	// before_sense mode="" deadline_ms=0 on_error=""
	// true <nil>
}

// The plugin drops perceptions without text.
func ExampleAfterSense() {
	declare(plugin.AfterSense(func(_ context.Context, c *plugin.HookCall[hook.PerceptionsData]) (plugin.Reply, error) {
		for i, p := range c.Data.Perceptions {
			c.Data.Perceptions[i].Drop = p.Text == ""
		}
		return plugin.Replace(c.Data), nil
	}))
	// Output: after_sense mode="" deadline_ms=0 on_error=""
}

// The plugin shows advice to the model, and hides a tool from it.
func ExampleBeforePlan() {
	declare(plugin.BeforePlan(func(_ context.Context, c *plugin.HookCall[hook.PlanData]) (plugin.Reply, error) {
		c.Data.Advice = append(c.Data.Advice, "It is night: speak softly.")
		c.Data.Tools = slices.DeleteFunc(c.Data.Tools, func(name string) bool { return name == "radio:play" })
		return plugin.Replace(c.Data), nil
	}))
	// Output: before_plan mode="" deadline_ms=0 on_error=""
}

func ExampleAfterPlan() {
	declare(plugin.AfterPlan(func(_ context.Context, c *plugin.HookCall[hook.AfterPlanData]) (plugin.Reply, error) {
		c.Data.Response.TextContent = strings.ReplaceAll(c.Data.Response.TextContent, "colour", "color")
		return plugin.Replace(c.Data), nil
	}))
	// Output: after_plan mode="" deadline_ms=0 on_error=""
}

// The plugin asks a person before anything is deleted.
func ExampleBeforeAct() {
	ask := func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		if strings.HasSuffix(c.Data.Tool, ":delete") {
			return plugin.Confirm(hook.LevelWarn, "This cannot be undone."), nil
		}
		return plugin.Continue(), nil
	}
	declare(plugin.BeforeAct(ask))
	reply, err := ask(context.Background(), &plugin.HookCall[hook.ActData]{Data: hook.ActData{Tool: "fs:read"}})
	fmt.Println(reply == plugin.Continue(), err)
	// Output:
	// before_act mode="" deadline_ms=0 on_error=""
	// true <nil>
}

func ExampleAfterAct() {
	declare(plugin.AfterAct(func(_ context.Context, c *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
		c.Data.Result = tool.Failure("too_old", "the forecast is of yesterday", "")
		return plugin.Replace(c.Data), nil
	}))
	// Output: after_act mode="" deadline_ms=0 on_error=""
}

func ExampleBeforeReflect() {
	declare(plugin.BeforeReflect(func(_ context.Context, c *plugin.HookCall[hook.ReflectData]) (plugin.Reply, error) {
		c.Data.Notes = append(c.Data.Notes, fmt.Sprintf("it took %d rounds", c.Data.Rounds))
		return plugin.Replace(c.Data), nil
	}))
	// Output: before_reflect mode="" deadline_ms=0 on_error=""
}

func ExampleAfterReflect() {
	declare(plugin.AfterReflect(func(_ context.Context, c *plugin.HookCall[hook.ReflectData]) error {
		fmt.Println(c.Session, "answered", c.Data.Answer)
		return nil
	}))
	// Output: after_reflect mode="" deadline_ms=0 on_error=""
}

func ExampleOnError() {
	declare(plugin.OnError(func(_ context.Context, c *plugin.HookCall[hook.ErrorData]) error {
		fmt.Println(c.Data.Code, c.Data.Message)
		return nil
	}))
	// Output: on_error mode="" deadline_ms=0 on_error=""
}

// pass is a hook that changes nothing.
func pass(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
	return plugin.Continue(), nil
}

func ExampleDeadline() {
	declare(plugin.BeforeAct(pass, plugin.Deadline(500*time.Millisecond)))
	// Output: before_act mode="" deadline_ms=500 on_error=""
}

// A plugin that only comments must not hold calls up when it fails.
func ExampleWhenFailing() {
	declare(plugin.BeforeAct(pass, plugin.WhenFailing(hook.Allow)))
	// Output: before_act mode="" deadline_ms=0 on_error="allow"
}

func ExampleInMode() {
	declare(plugin.BeforeAct(pass, plugin.InMode(hook.Chain)))
	// Output: before_act mode="chain" deadline_ms=0 on_error=""
}

// act is one call of a hook at before_act, as a test makes it.
func act(f plugin.HookFunc[hook.ActData], name string) plugin.Reply {
	reply, err := f(context.Background(), &plugin.HookCall[hook.ActData]{Data: hook.ActData{Tool: name}})
	if err != nil {
		fmt.Println(err)
	}
	return reply
}

func ExampleContinue() {
	fmt.Println(act(pass, "clock:now") == plugin.Reply{})
	// Output: true
}

// The data has the type of the point: here it is that of before_sense.
func ExampleReplace() {
	upper := func(_ context.Context, c *plugin.HookCall[hook.SenseData]) (plugin.Reply, error) {
		if c.Data.Text == "" {
			return plugin.Reply{}, errors.New("nothing was said")
		}
		c.Data.Text = strings.ToUpper(c.Data.Text)
		return plugin.Replace(c.Data), nil
	}
	reply, err := upper(context.Background(), &plugin.HookCall[hook.SenseData]{Data: hook.SenseData{Text: "hello"}})
	fmt.Println(reply == plugin.Replace(hook.SenseData{Text: "HELLO"}), err)
	// Output: true <nil>
}

// The plugins that follow in the chain are not asked.
func ExampleStop() {
	known := func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		if c.Data.Tool == "clock:now" {
			return plugin.Stop(), nil
		}
		return plugin.Continue(), nil
	}
	fmt.Println(act(known, "clock:now") == plugin.Stop(), act(known, "radio:play") == plugin.Continue())
	// Output: true true
}

func ExampleDeny() {
	never := func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		return plugin.Deny("nothing runs on Sundays"), nil
	}
	fmt.Println(act(never, "radio:play") == plugin.Deny("nothing runs on Sundays"))
	// Output: true
}

// A person sees the message and decides.
func ExampleConfirm() {
	ask := func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		return plugin.Confirm(hook.LevelWarn, "The oven becomes hot."), nil
	}
	fmt.Println(act(ask, "oven:on") != plugin.Continue())
	// Output: true
}

// The tool does not run: the reply is its result.
func ExampleAnswer() {
	cached := func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		return plugin.Answer("12:00"), nil
	}
	fmt.Println(act(cached, "clock:now") == plugin.Answer("12:00"))
	// Output: true
}

// An internal tool answers a hook. Without a bus, as in a test, there is none.
func ExampleHookCall_CallTool() {
	remember := func(ctx context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
		if _, err := c.CallTool(ctx, "notes:add", map[string]string{"text": c.Data.Tool}); err != nil {
			return plugin.Reply{}, err
		}
		return plugin.Continue(), nil
	}
	act(remember, "oven:on")
	// Output: calling an internal tool: the hook was not called over the bus
}
