// Package effects provides the tools of the group test, which tests of the whole
// system run: they leave traces that can be counted from outside, fail, hang and
// panic on demand.
package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

// File is where effects are written, in the workspace, unless a call names another.
const File = "effects.log"

// In returns the tools of this package for one workspace, which is created if it does not
// exist, and stays open.
func In(workspace string) ([]tools.Tool, error) {
	if err := os.MkdirAll(workspace, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	return toolsOf(root), nil
}

func toolsOf(root *os.Root) []tools.Tool {
	return []tools.Tool{
		count(root, "test:count", false), count(root, "test:count_idempotent", true),
		sleep(), panics(), big(), ignoreCancel(),
	}
}

type countArgs struct {
	File    string `json:"file"`
	Key     string `json:"key"`
	SleepMS int64  `json:"sleep_ms"`
	Fail    bool   `json:"fail"`
}

// count writes one line "<key> <call> <attempt>" to a file, on the disk
// before it answers. It writes first and sleeps afterwards, so that a kill
// meanwhile leaves an effect without a result.
func count(root *os.Root, name string, idempotent bool) tools.Tool {
	return tools.New(tool.Spec{
		Name:        name,
		Description: "For tests: adds the line \"key call attempt\" to a file, then sleeps, then answers or fails.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"file":{"type":"string","minLength":1,"default":"` + File + `"},
			"key":{"type":"string","pattern":"^\\S{1,200}$"},
			"sleep_ms":{"type":"integer","minimum":0,"maximum":7200000,"default":0},
			"fail":{"type":"boolean","default":false}},
			"required":["key"],"additionalProperties":false}`),
		Idempotent: idempotent, Risk: tool.RiskLow,
	}, func(ctx context.Context, c tools.Call, args countArgs) tool.Result {
		if args.File == "" {
			args.File = File
		}
		line := strings.Join([]string{args.Key, c.ID, c.Attempt}, " ") + "\n"
		if _, err := filesystem.Append(root, filepath.FromSlash(args.File), []byte(line)); err != nil {
			return tools.Fail(fmt.Errorf("writing the line: %w", err))
		}
		if err := wait(ctx, args.SleepMS); err != nil {
			return tools.Fail(err)
		}
		if args.Fail {
			return tools.Fail(errors.New("it failed on request"))
		}
		return tool.OK(map[string]string{"key": args.Key, "call": c.ID, "attempt": c.Attempt})
	})
}

func wait(ctx context.Context, ms int64) error {
	if ms <= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
}

func msSpec(name, description string) tool.Spec {
	return tool.Spec{
		Name: name, Description: "For tests: " + description,
		Args: json.RawMessage(`{"type":"object","properties":{
			"ms":{"type":"integer","minimum":0,"maximum":7200000}},"required":["ms"],"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow,
	}
}

type msArgs struct {
	MS int64 `json:"ms"`
}

func sleep() tools.Tool {
	return tools.New(msSpec("test:sleep", "sleeps and says how far it is."),
		func(ctx context.Context, c tools.Call, args msArgs) tool.Result {
			if c.Progress != nil {
				c.Progress(fmt.Sprintf("sleeping %d ms", args.MS))
			}
			if err := wait(ctx, args.MS); err != nil {
				return tools.Fail(err)
			}
			return tool.OK(map[string]int64{"slept_ms": args.MS})
		})
}

func ignoreCancel() tools.Tool {
	return tools.New(msSpec("test:ignore_cancel", "sleeps and cannot be stopped."),
		func(_ context.Context, _ tools.Call, args msArgs) tool.Result {
			time.Sleep(time.Duration(args.MS) * time.Millisecond)
			return tool.OK(map[string]int64{"slept_ms": args.MS})
		})
}

func panics() tools.Tool {
	return tools.New(tool.Spec{
		Name: "test:panic", Description: "For tests: panics in the middle of the call.", Idempotent: true, Risk: tool.RiskLow,
		Args: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
	}, func(context.Context, tools.Call, struct{}) tool.Result { panic("test:panic was called") })
}

func big() tools.Tool {
	return tools.New(tool.Spec{
		Name: "test:big", Description: "For tests: answers a text of so many bytes.", Idempotent: true, Risk: tool.RiskLow,
		Args: json.RawMessage(`{"type":"object","properties":{
			"bytes":{"type":"integer","minimum":0,"maximum":134217728}},"required":["bytes"],"additionalProperties":false}`),
	}, func(_ context.Context, _ tools.Call, args struct {
		Bytes int `json:"bytes"`
	},
	) tool.Result {
		const line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n"
		return tool.OK(strings.Repeat(line, args.Bytes/len(line)+1)[:args.Bytes])
	})
}
