// Package pdftext extracts the text of PDF documents.
//
// The documents come from strangers and their format invites attacks, so PDFium reads them in a
// WebAssembly sandbox inside of
// this process (package wazero, without cgo): it has no files, no network, and at most
// 256 MiB of memory; a crash or an endless loop in it ends as an error of [Read]. One
// document is read at a time, each in a new sandbox. The first one takes some two seconds
// longer, because PDFium is then compiled for this machine.
//
// A failure is an error that says why: no PDF, a password, a limit.
package pdftext
