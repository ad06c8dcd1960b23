package rpc

import (
	"github.com/coder/websocket"

	"skandha.dev/services/uibridge/contract"
)

// StatusSlow closes a connection that did not keep up.
const StatusSlow websocket.StatusCode = 4408

// Errors of the protocol, which end the connection.
var (
	errBinary  = &contract.Error{Code: contract.CodeInvalid, Message: "send text messages"}
	errNotUTF8 = &contract.Error{Code: contract.CodeInvalid, Message: "the message is not UTF-8"}
)

// closeCode returns the WebSocket status for an error.
func closeCode(e *contract.Error) websocket.StatusCode {
	switch {
	case e == contract.ErrGoingAway:
		return websocket.StatusGoingAway
	case e == errBinary:
		return websocket.StatusUnsupportedData
	case e == errNotUTF8:
		return websocket.StatusInvalidFramePayloadData
	case e.Code == contract.CodeSlow:
		return StatusSlow
	}
	return websocket.StatusCode(4000 + e.Status())
}
