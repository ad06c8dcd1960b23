// Package deps decides which packages a model may install, and installs them.
//
// [Parse] admits names with optional extras and versions, in the syntax of PEP 508, and
// nothing else: no option, URL, path, marker or file. What it admits is data: in canonical
// form it becomes arguments of pip after "--", and never passes through a shell or a
// requirements file. Only parsing creates a [Requirement].
//
// [Manager] creates package sets. A set's id is a hash of everything that determines it
// ([Hash]). An existing set is not created again, callers wait for one that is being
// created, and a failed one is not retried for a short time. It installs through
// driver.Driver, in a sandbox that has a network and nothing else, by a program of this
// package (install.py) that runs pip with wheels only. It has no subjects; the sandbox
// service calls it.
//
// # Guarantee
//
// No code of a package runs while it is installed: source distributions are refused
// wherever they are from, pip cannot start a process, and cannot write outside of the set.
// The operator chooses the index ([Config.Index]): pip's environment and configuration
// files are ignored, and a package with a URL as its dependency is refused. Before a set
// becomes available it is checked: links and special files refuse it, .pth files and
// sitecustomize are dropped, and it is within its bounds of bytes and files.
//
// A set exists completely or not at all; drivers guarantee that. Failures are [*Error],
// with texts for the model. They do not name hosts: the index is the operator's.
package deps
