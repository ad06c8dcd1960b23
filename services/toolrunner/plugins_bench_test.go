package toolrunner_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
	"skandha.dev/services/toolrunner"
)

// BenchmarkPluginTool is a tool call that a plugin carries out: as core makes it,
// by way of the runner, and the plugin's own part of it, the bare request.
func BenchmarkPluginTool(b *testing.B) {
	const result = `{"success":true,"data":{"sky":"grey","wind":3}}`
	b.Run("runner", func(b *testing.B) {
		p := startWeather(b, toolrunner.Config{}, respond(result))
		answers := make(chan executor.Answer, 1)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			body, err := json.Marshal(executor.Request{
				Op: executor.OpRun, Agent: "a", Session: "s", Call: fmt.Sprintf("b%d", i), Attempt: "n",
				StartBy: time.Now().Add(executor.StartWithin), NotAfter: time.Now().Add(time.Minute),
				Tool: &executor.ToolCall{Name: "weather:now", Args: json.RawMessage(ulm), Turn: "t"},
			})
			if err != nil {
				b.Fatal(err)
			}
			inst := string(p.offer.Instance)
			forget, err := p.caller.Send(b.Context(), subject.Executor(subject.Runner, p.offer.Instance), inst, nil, body,
				func(m bus.Reply) {
					var a executor.Answer
					if json.Unmarshal(m.Data, &a) == nil && a.State.Final() {
						answers <- a
					}
				})
			if err != nil {
				b.Fatal(err)
			}
			if a := <-answers; a.State != executor.Finished || !a.Result.Success {
				b.Fatalf("got %+v", a)
			}
			forget()
		}
	})
	b.Run("raw", func(b *testing.B) {
		s := natstest.Start(b)
		plugincalltest.Answer(b, plugincalltest.Client(b, s), "weather", weatherSubject, respond(result))
		nc := plugincalltest.Client(b, s)
		body, err := json.Marshal(tool.Call{
			Call: "b", Attempt: "n", Agent: "a", Session: "s", Turn: "t", Tool: "weather:now",
			Args: json.RawMessage(`{"city":"Ulm","unit":"C"}`), Deadline: time.Now().Add(time.Minute).UTC(),
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := nc.Request(weatherSubject, body, natstest.Patience); err != nil {
				b.Fatal(err)
			}
		}
	})
}
