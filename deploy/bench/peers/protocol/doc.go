// Package peers is the protocol of skandha.dev/services/bench/peers: the same file, so that this module imports no
// other of ours, and no requirement of ours changes what the engines are built with.
package peers
