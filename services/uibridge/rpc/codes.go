package rpc

import (
	"github.com/coder/websocket"

	"skandha.dev/services/uibridge/contract"
)

// The numbers of JSON-RPC itself.
const (
	codeParse   = -32700
	codeRequest = -32600
)

// numbers are what the codes are as JSON-RPC numbers. They are part of the contract.
var numbers = map[contract.Code]int{
	contract.CodeUnknownMethod:   -32601,
	contract.CodeInvalid:         -32602,
	contract.CodeInternal:        -32603,
	contract.CodeUnauthenticated: -32001,
	contract.CodeForbidden:       -32003,
	contract.CodeNotFound:        -32004,
	contract.CodeSlow:            -32008,
	contract.CodeConflict:        -32009,
	contract.CodeTooLarge:        -32013,
	contract.CodeRateLimited:     -32029,
	contract.CodeUnavailable:     -32053,
}

// Number is the code as a JSON-RPC number.
func Number(c contract.Code) int {
	if n, ok := numbers[c]; ok {
		return n
	}
	return numbers[contract.CodeInternal]
}

// StatusSlow closes a connection that did not keep up.
const StatusSlow websocket.StatusCode = 4408

// Ends that are the protocol's.
var (
	errBinary  = &contract.Error{Code: contract.CodeInvalid, Message: "send text messages"}
	errNotUTF8 = &contract.Error{Code: contract.CodeInvalid, Message: "the message is not UTF-8"}
)

// closeCode is how a connection ends for a reason.
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
