package contract

import (
	"reflect"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/internal/timeline"
	ui "skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/inspect"
)

// goTypes is which Go type each schema states. A schema that is not here must be
// in noGoType.
var goTypes = map[string]any{
	"error": bus.Error{},

	"events/sense.input.v1":          event.Input{},
	"events/sense.confirmation.v1":   event.Confirmation{},
	"events/sense.cancel.v1":         event.Cancel{},
	"events/sense.command.v1":        event.Command{},
	"events/sense.timer.v1":          event.Timer{},
	"events/sense.perceived.v1":      event.Perceived{},
	"events/plan.considered.v1":      event.PlanConsidered{},
	"events/plan.requested.v1":       event.PlanRequested{},
	"events/plan.completed.v1":       event.PlanCompleted{},
	"events/plan.recalled.v1":        event.Recalled{},
	"events/question":                event.Question{},
	"events/learned":                 event.Learned{},
	"events/lesson":                  event.Lesson{},
	"events/project":                 event.Project{},
	"events/skill":                   event.Skill{},
	"events/from_agent":              event.FromAgent{},
	"events/commission":              event.Commission{},
	"events/task":                    event.Task{},
	"events/task_report":             event.TaskReport{},
	"events/act.requested.v1":        event.ActRequested{},
	"events/act.approved.v1":         event.ActApproved{},
	"events/act.confirmed.v1":        event.ActConfirmed{},
	"events/act.completed.v1":        event.ActCompleted{},
	"events/security.audited.v1":     event.Audited{},
	"events/reflect.recorded.v1":     event.Recorded{},
	"events/turn.failed.v1":          event.TurnFailed{},
	"events/session.locked.v1":       event.SessionLocked{},
	"events/session.reset.v1":        event.SessionReset{},
	"events/session.paused.v1":       event.SessionPaused{},
	"events/session.checkpoint.v1":   event.Checkpoint{},
	"events/session.summarized.v1":   event.Summarized{},
	"events/ui.message.v1":           event.UIMessage{},
	"events/ui.tool_call_request.v1": event.ToolCallRequest{},
	"events/ui.ready.v1":             event.UIReady{},
	"events/ui.state.v1":             event.UIState{},
	"events/commit.v1":               event.Header{},
	"events/stream.delta.v1":         provider.Delta{},
	"events/stream.output.v1":        tool.Output{},
	"events/envelope":                event.Event{},

	"security/approval":    event.Approval{},
	"security/grant":       event.Grant{},
	"security/obligations": event.Obligations{},

	"executor/request":      executor.Request{},
	"executor/answer":       executor.Answer{},
	"executor/announcement": executor.Announcement{},

	"memory/memory": memory.Memory{},
	"memory/hit":    memory.Hit{},
	"memory/source": memory.Source{},

	"hooks/envelope":       hook.Envelope{},
	"hooks/reply":          hook.Reply{},
	"hooks/verdict":        hook.Verdict{},
	"hooks/warning":        hook.Warning{},
	"hooks/on_agent_start": hook.AgentData{},
	"hooks/before_sense":   hook.SenseData{},
	"hooks/after_sense":    hook.PerceptionsData{},
	"hooks/before_plan":    hook.PlanData{},
	"hooks/after_plan":     hook.AfterPlanData{},
	"hooks/before_act":     hook.ActData{},
	"hooks/after_act":      hook.AfterActData{},
	"hooks/before_reflect": hook.ReflectData{},
	"hooks/after_reflect":  hook.ReflectData{},
	"hooks/on_error":       hook.ErrorData{},
	"hooks/on_agent_stop":  hook.AgentData{},

	"tool/spec":     tool.Spec{},
	"tool/call":     tool.Call{},
	"tool/probe":    tool.Probe{},
	"tool/delivery": tool.Delivery{},
	"tool/result":   tool.Result{},
	"tool/error":    tool.Error{},
	"tool/output":   tool.Output{},

	"provider/message":   provider.Message{},
	"provider/file":      provider.File{},
	"provider/tool_call": provider.ToolCall{},
	"provider/tool_spec": provider.ToolSpec{},
	"provider/request":   provider.Request{},
	"provider/response":  provider.Response{},
	"provider/usage":     provider.Usage{},
	"provider/error":     provider.Error{},
	"provider/delta":     provider.Delta{},
	"provider/info":      provider.Info{},
	"provider/call":      provider.Call{},
	"provider/reply":     provider.Reply{},

	"guide/guide":   guide.Guide{},
	"guide/request": guide.Request{},

	"manifest.v1":       plugin.Manifest{},
	"plugin/lease":      plugin.Lease{},
	"plugin/heartbeat":  plugin.Heartbeat{},
	"plugin/unregister": plugin.Unregister{},
	"storage/request":   plugin.StorageRequest{},
	"storage/reply":     plugin.StorageReply{},

	"storage/index_request": plugin.IndexRequest{},
	"storage/index_reply":   plugin.IndexReply{},

	"service/provider/report":        providerapi.Report{},
	"service/camera/look_request":    senses.LookRequest{},
	"service/camera/picture":         senses.Picture{},
	"service/provider/embedder":      providerapi.Embedder{},
	"service/provider/embed_request": providerapi.EmbedRequest{},
	"service/provider/embed":         providerapi.EmbedAnswer{},

	"service/provider/transcribe_request": providerapi.TranscribeRequest{},
	"service/provider/transcript":         providerapi.Transcript{},
	"service/provider/stop":               bus.Stop{},
	"service/provider/speak_request":      providerapi.SpeakRequest{},
	"service/provider/speech":             providerapi.Speech{},
	"service/provider/speech_model":       providerapi.SpeechModel{},

	"service/core/tools":              []coreapi.ToolInfo{},
	"service/core/past_query":         coreapi.PastQuery{},
	"service/core/messages":           coreapi.MessagesPage{},
	"service/core/messages_query":     coreapi.MessagesQuery{},
	"service/core/sessions_query":     coreapi.SessionsQuery{},
	"service/core/sessions":           coreapi.SessionsPage{},
	"service/core/status":             coreapi.Status{},
	"service/core/view":               coreapi.View{},
	"service/core/refill_request":     coreapi.RefillQuery{},
	"service/core/refill":             coreapi.RefillAnswer{},
	"service/core/call_request":       tool.InternalCall{},
	"service/core/beacon":             bus.Beacon{},
	"service/core/plugins":            []registrar.PluginInfo{},
	"service/core/plugin":             registrar.PluginInfo{},
	"service/core/plugin_request":     registrar.PluginRequest{},
	"service/core/hooks":              coreapi.HooksInfo{},
	"service/core/memory":             coreapi.MemoryAnswer{},
	"service/core/memory_request":     coreapi.MemoryQuery{},
	"service/core/audit":              coreapi.AuditPage{},
	"service/core/audit_request":      coreapi.AuditQuery{},
	"service/core/audit_entry":        audit.Entry{},
	"service/core/audit_head":         audit.Head{},
	"service/core/outbox":             coreapi.OutboxPage{},
	"service/core/outbox_request":     coreapi.OutboxQuery{},
	"service/core/occur_request":      coreapi.Occurrence{},
	"service/core/occurred":           coreapi.Occurred{},
	"service/core/charter":            rights.Charter{},
	"service/core/identities":         coreapi.IdentitiesPage{},
	"service/core/identities_request": coreapi.IdentitiesQuery{},
	"service/core/schedules":          coreapi.SchedulesPage{},
	"service/core/schedules_request":  coreapi.SchedulesQuery{},

	"ui/about":                  ui.About{},
	"ui/error":                  ui.Error{},
	"ui/receipt":                ui.Receipt{},
	"ui/principal":              ui.Principal{},
	"ui/onNewMessage":           ui.Message{},
	"ui/onToolCallRequest":      ui.ToolCallRequest{},
	"ui/onReadyForInput":        ui.About{},
	"ui/onAgentStateChange":     ui.StateChange{},
	"ui/onInput":                ui.Input{},
	"ui/onPlanConsidered":       ui.PlanConsidered{},
	"ui/onPlanRequested":        ui.PlanRequested{},
	"ui/onPlanCompleted":        ui.PlanCompleted{},
	"ui/onToolCall":             ui.ToolCall{},
	"ui/onToolResult":           ui.ToolResult{},
	"ui/onPartialApproval":      ui.PartialApproval{},
	"ui/proof":                  ui.Proof{},
	"ui/onConfirmationResolved": ui.ConfirmationResolved{},
	"ui/onAudit":                ui.Audit{},
	"ui/onTurnEnd":              ui.TurnEnd{},
	"ui/onSessionLocked":        ui.SessionLocked{},
	"ui/onSessionReset":         ui.SessionReset{},
	"ui/onCommit":               ui.Commit{},
	"ui/onDelta":                ui.Delta{},
	"ui/onToolOutput":           ui.ToolOutput{},
	"ui/onAttached":             ui.Attached{},
	"ui/onBus":                  ui.Bus{},
	"ui/onDropped":              ui.Dropped{},

	"ui/results/listSessions":  coreapi.SessionsPage{},
	"ui/results/listTools":     []coreapi.ToolInfo{},
	"ui/results/listPlugins":   []registrar.PluginInfo{},
	"ui/results/listProviders": []providerapi.Report{},
	"ui/results/getHooks":      coreapi.HooksInfo{},
	"ui/results/getStatus":     coreapi.Status{},
	"ui/results/pluginAction":  registrar.PluginInfo{},
	"ui/results/listTurns":     timeline.TurnsPage{},
	"ui/results/getTimeline":   timeline.Timeline{},
	"ui/results/listArtifacts": []inspect.ArtifactInfo{},

	"ui/results/listMemories":   inspect.MemoriesPage{},
	"ui/results/searchMemories": inspect.MemoryHits{},
	"ui/results/addMemory":      memory.Memory{},
	"ui/results/correctMemory":  memory.Memory{},
	"ui/results/forgetMemory":   inspect.Forgotten{},

	"ui/results/listListeners":  []senses.Listed{},
	"ui/results/switchListener": []senses.Listed{},
	"ui/results/listAudit":      coreapi.AuditPage{},
	"ui/results/listIdentities": coreapi.IdentitiesPage{},
	"ui/results/revokeIdentity": coreapi.IdentitiesPage{},
	"ui/results/listOutbox":     coreapi.OutboxPage{},
	"ui/results/outboxAction":   coreapi.OutboxPage{},
}

// noGoType are the schemas without a Go type, and why.
var noGoType = map[string]string{
	"ids":                        "definitions alone",
	"events/ack":                 "the server's own answer; wire_test.go holds it against a server",
	"events/event":               "any one of the events, each with a separate type",
	"events/commit":              "event.Commit has no JSON encoding: DecodeCommit and Encode, see examples_test.go",
	"tool/answer":                "tool.Result, or a short form of one",
	"provider/answer":            "provider.Reply, or a short form of one",
	"guide/answer":               "guide.Guide, with either names; guide.Decode reads it",
	"service/core/session_query": "subject.Ref, whose fields are flattened into other types",
	"service/core/past":          "its events are those of events/commit",
	"service/core/session":       "its state is core's own and changes with fold_version",

	"ui/notification": "each method has a separate type; the live test of uibridge/rpc checks " +
		"it against what is sent",
	"ui/methods/attach": "the parameters of methods are read one by one: " +
		"these and the following see ui_test.go",
	"ui/methods/detach":              "likewise",
	"ui/methods/submitUserInput":     "likewise",
	"ui/methods/provideConfirmation": "likewise",
	"ui/methods/cancelTurn":          "likewise",
	"ui/methods/runCommand":          "likewise",
	"ui/methods/listSessions":        "likewise",
	"ui/methods/getSession":          "likewise",
	"ui/methods/listTools":           "likewise",
	"ui/methods/listPlugins":         "likewise",
	"ui/methods/getHooks":            "likewise",
	"ui/methods/listProviders":       "likewise",
	"ui/methods/getStatus":           "likewise",
	"ui/methods/pluginAction":        "likewise",
	"ui/methods/listTurns":           "likewise",
	"ui/methods/getTimeline":         "likewise",
	"ui/methods/listArtifacts":       "likewise",
	"ui/methods/listMemories":        "likewise",
	"ui/methods/searchMemories":      "likewise",
	"ui/methods/addMemory":           "likewise",
	"ui/methods/correctMemory":       "likewise",
	"ui/methods/forgetMemory":        "likewise",
	"ui/methods/listListeners":       "likewise",
	"ui/methods/switchListener":      "likewise",
	"ui/methods/listOutbox":          "likewise",
	"ui/methods/outboxAction":        "likewise",
	"ui/methods/listAudit":           "likewise",
	"ui/methods/listIdentities":      "likewise",
	"ui/methods/revokeIdentity":      "likewise",
	"ui/results/getSession":          "it is service/core/session",
}

// contractPackages are those whose structs must all be stated, relative to pkg.
var contractPackages = []string{
	"event", "guide", "hook", "memory", "plugin", "provider", "tool", "../services/internal/executor",
	"../services/uibridge/contract", "../services/uibridge/inspect", "../services/internal/timeline",
}

// noSchema are the structs of these packages that never cross the bus.
var noSchema = map[string]string{}

// wireOnly are the properties that a type's encoder writes and its struct has not.
var wireOnly = map[string]string{
	"executor.Request.lines": "executor.Encode says how many lines follow, see wire_test.go",
}

// openEnum are the named strings, and fields, whose constants are not all there is.
var openEnum = map[string]string{
	"subject.Writer":      "any id; TimerWriter and ScheduleWriter are those that core uses",
	"event.Trigger.Cause": "a cause of an unknown kind is ended as unknown_cause, and its kind is in the commit",
}

func goType(name string) (reflect.Type, bool) {
	v, ok := goTypes[name]
	return reflect.TypeOf(v), ok
}
