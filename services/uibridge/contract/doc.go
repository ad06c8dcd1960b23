// Package contract defines what the transports of the UI bridge (WebSocket, SSE, AG-UI, the
// OpenAI-compatible API) and their backend share: principals and their rights, requests,
// and notifications.
//
// The names are those of the specification: submitUserInput and provideConfirmation are
// requests; onNewMessage, onToolCallRequest, onReadyForInput and onAgentStateChange are
// notifications; the others follow the same style. Every notification that comes from the
// log has its place there, "<commit sequence>.<index>", as its id: a client that continues
// after the last id it saw misses nothing and sees nothing twice. Token deltas and tool
// output have no id: they may be lost, and a later notification contains whatever was lost.
package contract
