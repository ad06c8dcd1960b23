package jsonrpc

import "skandha.dev/services/uibridge/contract"

// The numbers that JSON-RPC defines.
const (
	codeParse   = -32700
	codeRequest = -32600
)

// numbers maps the codes to JSON-RPC numbers, which are part of the contract.
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
	contract.CodeOverloaded:      -32030,
	contract.CodeUnavailable:     -32053,
}

// Number returns the code as a JSON-RPC number.
func Number(c contract.Code) int {
	if n, ok := numbers[c]; ok {
		return n
	}
	return numbers[contract.CodeInternal]
}
