// Package compat is the parent of the APIs that other systems' clients speak: package
// openai (chat completions), package agui (AG-UI), package mcp (MCP) and package acp (ACP).
// They are clients of the bridge's own contract, and no part of the bridge depends on them:
// each turns one request into a submission, and follows its turn over a feed with package turn.
package compat
