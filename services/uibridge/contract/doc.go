// Package contract is what the doors of the UI bridge (WebSocket, SSE, AG-UI, the
// OpenAI-compatible API) and the backend behind them have in common: who somebody is
// and what he may do, what he can ask for, and what he is told.
//
// The names are those of the specification: submitUserInput and provideConfirmation
// go in, onNewMessage, onToolCallRequest, onReadyForInput and onAgentStateChange come
// out; the rest is named alike. Every notification that stands in the log carries its
// place there, "<commit sequence>.<index>", as id: whoever goes on after the last id
// that he saw misses nothing and sees nothing twice. Token deltas and what tools print
// have no id: they are lossy, and what is lost of them is in a later notification.
package contract
