package signals

import (
	"os"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
)

// SchemaURL is the version of the semantic conventions that the names of messaging, errors and services follow.
const SchemaURL = "https://opentelemetry.io/schemas/1.37.0"

// The names of the conventions for generative AI, which are in development: those of the version above.
const (
	GenAIOperation    = attribute.Key("gen_ai.operation.name")
	GenAIProvider     = attribute.Key("gen_ai.provider.name")
	GenAIAgent        = attribute.Key("gen_ai.agent.name")
	GenAIConversation = attribute.Key("gen_ai.conversation.id")
	GenAIRequestModel = attribute.Key("gen_ai.request.model")
	GenAIModel        = attribute.Key("gen_ai.response.model")
	GenAIInputTokens  = attribute.Key("gen_ai.usage.input_tokens")
	GenAIOutputTokens = attribute.Key("gen_ai.usage.output_tokens")
	GenAITokenType    = attribute.Key("gen_ai.token.type")
	GenAIToolName     = attribute.Key("gen_ai.tool.name")
	GenAIToolCall     = attribute.Key("gen_ai.tool.call.id")
	GenAIToolArgs     = attribute.Key("gen_ai.tool.call.arguments")
	GenAIToolResult   = attribute.Key("gen_ai.tool.call.result")
	GenAIInput        = attribute.Key("gen_ai.input.messages")
	GenAIOutput       = attribute.Key("gen_ai.output.messages")

	ErrorType = attribute.Key("error.type")

	// GenAIDuration and GenAITokens are histograms, in seconds and in tokens.
	GenAIDuration = "gen_ai.client.operation.duration"
	GenAITokens   = "gen_ai.client.token.usage"
)

// The operations.
const (
	OperationAgent = "invoke_agent"
	OperationChat  = "chat"
	OperationTool  = "execute_tool"
)

// Skandha's own names.
const (
	Agent    = attribute.Key("skandha.agent")
	Session  = attribute.Key("skandha.session")
	Turn     = attribute.Key("skandha.turn")
	Writer   = attribute.Key("skandha.writer")
	Outcome  = attribute.Key("skandha.outcome")
	Status   = attribute.Key("skandha.status")
	Kind     = attribute.Key("skandha.kind")
	Call     = attribute.Key("skandha.call")
	Attempt  = attribute.Key("skandha.attempt")
	Round    = attribute.Key("skandha.round")
	Point    = attribute.Key("skandha.hook.point")
	Plugin   = attribute.Key("skandha.plugin")
	Verb     = attribute.Key("skandha.hook.verb")
	Instance = attribute.Key("skandha.executor")
	Service  = attribute.Key("skandha.service")
	Person   = attribute.Key("skandha.approved_by")
	Rule     = attribute.Key("skandha.policy.rule")
	Effect   = attribute.Key("skandha.policy.effect")
	Reason   = attribute.Key("skandha.reason")
	Text     = attribute.Key("skandha.text")
	State    = attribute.Key("skandha.state")
	Phase    = attribute.Key("skandha.phase")
	Stream   = attribute.Key("stream") // of the bus
)

// Skandha's own metrics.
const (
	Cost     = "skandha.cost.usd"
	Unpriced = "skandha.cost.unknown"
)

// Content reports whether spans have what people, models and tools have said.
func Content() bool {
	on, _ := strconv.ParseBool(os.Getenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")) // anything else is no
	return on
}

// Said returns a message, which may repeat what somebody has said, if that is wanted, or else a code.
func Said(message, code string) string {
	if Content() {
		return message
	}
	return code
}
